// Experts and a layer computed with plain loops, as a reference for every fast path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "shunt/dtype.hpp"

namespace shunt {

struct ReferenceExpert {
  std::int64_t hidden;
  std::int64_t ffn;
  DType dtype;                 ///< every product and the activation are rounded to it
  std::vector<float> gate_up;  ///< [2 ffn, hidden]
  std::vector<float> down;     ///< [hidden, ffn]

  /// The expert's output for one row.
  [[nodiscard]] std::vector<float> apply(std::span<const float> x) const;
};

/// A layer's output for one token: weight × expert(x), summed over its choices in double precision (so that no order of
/// sums is preferred) and rounded to the experts' dtype. experts: −1 = dropped. expert_of: called with the logical
/// expert.
[[nodiscard]] std::vector<float> reference_token(std::span<const float> x, std::span<const std::int32_t> experts,
                                                 std::span<const float> weights,
                                                 const std::function<ReferenceExpert(std::int32_t)>& expert_of);

/// ‖actual − expected‖ ÷ ‖expected‖; NaN if an element is NaN.
[[nodiscard]] double relative_error(std::span<const float> actual, std::span<const float> expected);
/// Tolerance of relative_error() for sums in another order and results rounded to the dtype.
[[nodiscard]] double tolerance_of(DType dtype);

}  // namespace shunt
