// Tokens to experts.
#pragma once

#include "engine/row_block.hpp"
#include "engine/shuffle.hpp"
#include "kernels/store.hpp"
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
  void finish() override;

 private:
  struct Receiver {
    RowBlock block;
    std::byte* base;
  };

  void send_token(std::int64_t token, const std::vector<Receiver>& receivers, Store store);
  void send_companions(std::int64_t token, const Target& target, const Receiver& receiver) const;
  void send_source_counts(const std::vector<Receiver>& receivers) const;
  void fill_padding(const Receiver& own) const;

  Inputs in_;
  std::vector<std::uint8_t> quantised_;  // one row
  std::vector<float> quantised_scales_;
};

}  // namespace shunt
