// Tokens to experts.
#pragma once

#include "engine/cuda/cluster/shuffle.hpp"

namespace shunt::device {

class ClusterDispatch final : public ClusterShuffle {
 public:
  /// Rows, or their scales, on this rank.
  struct Output {
    Tensor received;   ///< peers write into it
    Tensor copy_into;  ///< where the caller wants them, if not there; else empty
  };

  struct Inputs {
    Place place;
    ConstTensor x;            ///< as it travels
    ConstTensor scales;       ///< of fp8 x, else empty
    ConstTensor to_quantise;  ///< what x and scales are to be made from; empty: they are complete
    Output rows;
    Output row_scales;
  };

  ClusterDispatch(const Context& context, const Announcement& announcement, Inputs inputs)
      : ClusterShuffle(context, announcement, std::move(inputs.place)), in_(std::move(inputs)) {}

  bool finish() override;

 protected:
  bool prepare() override;
  [[nodiscard]] std::vector<std::byte*> rows_by_rank(std::span<const Announcement> peers) override;
  void add_traffic() override;
  void launch_near() override;

 private:
  [[nodiscard]] bool has_scales() const { return in_.x.dtype == fp8_e4m3; }
  void add_run(std::size_t index, const ConstTensor& x);
  void copy_near(const ConstTensor& x, std::byte* const* out, const Output& output);

  Inputs in_;
  std::optional<Lane::Mark> copied_;
};

}  // namespace shunt::device
