// An expert computed on the host with plain loops: what devices are compared with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shunt/dtype.hpp"

namespace shunt::cli {

struct HostExpert {
  std::int64_t hidden;
  std::int64_t ffn;
  DType dtype;                 ///< what every product and the activation are rounded to
  std::vector<float> gate_up;  ///< [2 ffn, hidden]
  std::vector<float> down;     ///< [hidden, ffn]

  /// What it makes of one row.
  [[nodiscard]] std::vector<float> apply(std::span<const float> x) const;
};

[[nodiscard]] float rounded_to(float value, DType dtype);
/// Elements of a dtype in memory, in fp32.
[[nodiscard]] std::vector<float> widened(std::span<const std::byte> elements, DType dtype);

/// ‖actual − expected‖ ÷ ‖expected‖; NaN where an element is.
[[nodiscard]] double relative_error(std::span<const float> actual, std::span<const float> expected);
/// What rounding explains: sums of another order, each result rounded to the dtype.
[[nodiscard]] double tolerance_of(DType dtype);

}  // namespace shunt::cli
