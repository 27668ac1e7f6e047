// Expert outputs back to their tokens.
#pragma once

#include "engine/shuffle.hpp"
#include "kernels/reduce.hpp"
#include "shunt/engine.hpp"
#include "shunt/tensor.hpp"

namespace shunt {

class Combine final : public Shuffle {
 public:
  struct Inputs {
    std::shared_ptr<const void> rows_owner;  ///< keeps this rank's announced rows alive
    std::int64_t hidden;
    ReduceFormat format;
    Reduction reduction;
    bool weighted;  ///< false for the gradient of dispatch
    Tensor out;
  };

  Combine(const Context& context, const Announcement& announcement, Inputs inputs)
      : Shuffle(context, announcement), in_(std::move(inputs)) {}

  void begin(std::span<const Announcement> peers) override;

 private:
  [[nodiscard]] Closes closes(std::span<const Target> targets, std::size_t i) const;

  Inputs in_;
};

}  // namespace shunt
