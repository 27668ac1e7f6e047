// The gradient of combine: weighted rows to the experts, and a dot product per routing weight.
#pragma once

#include "engine/shuffle.hpp"
#include "shunt/tensor.hpp"

namespace shunt {

/// The rank that owns the token reads the expert's output in place, so that each weight's gradient is ready where it is
/// wanted and no scalar has to travel.
class CombineBackward final : public Shuffle {
 public:
  struct Inputs {
    ConstTensor grad_out;
    std::shared_ptr<const void> expert_out_owner;  ///< keeps this rank's announced expert outputs alive
    DType expert_dtype;
    Block output;         ///< this rank's gradient rows; peers write into it
    float* grad_weights;  ///< [tokens, topk], zero at first; nullptr in `token_unique`
  };

  CombineBackward(const Context& context, const Announcement& announcement, Inputs inputs)
      : Shuffle(context, announcement), in_(std::move(inputs)) {}

  void begin(std::span<const Announcement> peers) override;

 private:
  Inputs in_;
};

}  // namespace shunt
