// Dispatch: token rows to the slots of their experts.
#pragma once

#include "engine/row_block.hpp"
#include "engine/shuffle.hpp"
#include "shunt/tensor.hpp"

namespace shunt {

class Dispatch final : public Shuffle {
 public:
  struct Inputs {
    ConstTensor x;
    ConstTensor scales;  ///< for fp8 x; empty when x is quantised here
    RowFormat format;
    Block output;  ///< this rank's block; peers write into it
    // The caller's outputs for rows and scales, where they are not in the block; else empty.
    Tensor copy_into;
    Tensor copy_scales_into;
  };

  Dispatch(const Context& context, const Announcement& announcement, Inputs inputs)
      : Shuffle(context, announcement), in_(std::move(inputs)) {}

  /// The block of a rank's output.
  static RowBlock block_of(const PlanData& plan, const RowFormat& format, RankId rank);

  void begin(std::span<const Announcement> peers) override;
  Work work() override;
  bool finish() override;

 private:
  /// A token's row and scales as they travel; valid until the next call.
  struct Row {
    const std::byte* elements;
    const std::byte* scales;
  };
  Row row_of(std::int64_t token);
  /// Writes a row and its companions into its slots on near ranks. `scales` need not be aligned.
  void scatter(const Row& row, const RowOrigin& origin, std::span<const Target> targets) const;

  void send_near(std::int64_t token);
  bool send_far();
  bool forward();
  void write_source_counts() const;
  void fill_padding() const;
  void pack() const;

  Inputs in_;
  /// A rank's block, as this rank addresses it.
  struct Receiver {
    RowBlock block;
    std::byte* base;  ///< nullptr for a far rank, which is reached through a forwarder
  };
  std::vector<Receiver> receivers_;  // by rank
  Store store_ = Store::cached;
  std::int64_t next_token_ = 0;
  FarFlows<OutFlow, InFlow> far_;
  std::vector<std::uint8_t> quantised_;  // one row
  std::vector<float> quantised_scales_;
};

}  // namespace shunt
