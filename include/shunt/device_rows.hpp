// What dispatch on a device delivers.
#pragma once

#include "shunt/tensor.hpp"

namespace shunt {

/// In device memory, each part alive as long as its tensor. Alignment padding is zero, scales included; rows beyond
/// what a bounded plan received hold anything.
struct DeviceRows {
  /// [plan.num_rows(), hidden] in the engine's row dtype and the plan's layout.
  Tensor rows;
  /// fp8 rows only: [plan.num_rows(), scales_per_row(hidden)] f32.
  Tensor scales;
};

}  // namespace shunt
