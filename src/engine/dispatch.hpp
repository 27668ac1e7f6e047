// Tokens to experts.
#pragma once

#include "engine/flow_streams.hpp"
#include "engine/row_block.hpp"
#include "engine/row_scatter.hpp"
#include "engine/shuffle.hpp"
#include "shunt/tensor.hpp"

namespace shunt {

class Dispatch final : public Shuffle {
 public:
  struct Inputs {
    ConstTensor x;
    ConstTensor scales;  ///< for fp8 x; empty when x is quantised here
    RowFormat format;
    Block output;      ///< this rank's block; peers write into it
    Tensor copy_into;  ///< where the caller wants the rows, if not in the block; else empty
  };

  Dispatch(const Context& context, const Announcement& announcement, Inputs inputs)
      : Shuffle(context, announcement), in_(std::move(inputs)) {}

  /// The block of a rank's output.
  static RowBlock block_of(const PlanData& plan, const RowFormat& format, RankId rank);

  void begin(std::span<const Announcement> peers) override;
  Work work() override;
  [[nodiscard]] std::vector<RankId> awaited_far() const override { return far_.awaited(); }
  bool finish() override;

 private:
  /// A token's row and scales as they travel; valid until the next call.
  struct Row {
    const std::byte* elements;
    const std::byte* scales;
  };
  Row row_of(std::int64_t token);

  void send_near(std::int64_t token);
  bool send_far();
  bool forward();
  void write_source_counts() const;
  void fill_padding() const;

  Inputs in_;
  std::optional<RowScatter> scatter_;
  std::int64_t next_token_ = 0;
  FlowTraffic<OutFlow, InFlow> far_;
  std::vector<std::uint8_t> quantised_;  // one row
  std::vector<float> quantised_scales_;
};

}  // namespace shunt
