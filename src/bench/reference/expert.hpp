// Experts and a layer computed with plain loops: what every fast path is compared with.
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
  DType dtype;                 ///< what every product and the activation are rounded to
  std::vector<float> gate_up;  ///< [2 ffn, hidden]
  std::vector<float> down;     ///< [hidden, ffn]

  /// What it makes of one row.
  [[nodiscard]] std::vector<float> apply(std::span<const float> x) const;
};

/// What a layer makes of one token: weight × expert(x) summed over its choices in double precision, as no order of
/// sums is better than another; rounded to the experts' dtype. experts: −1 = dropped. expert_of: by logical expert.
[[nodiscard]] std::vector<float> reference_token(std::span<const float> x, std::span<const std::int32_t> experts,
                                                 std::span<const float> weights,
                                                 const std::function<ReferenceExpert(std::int32_t)>& expert_of);

/// ‖actual − expected‖ ÷ ‖expected‖; NaN where an element is.
[[nodiscard]] double relative_error(std::span<const float> actual, std::span<const float> expected);
/// What rounding explains: sums of another order, each result rounded to the dtype.
[[nodiscard]] double tolerance_of(DType dtype);

}  // namespace shunt
