// Dot products for the gradient of routing weights.
#pragma once

#include <cstddef>

#include "shunt/dtype.hpp"

namespace shunt {

/// Dot product of two rows in f32, bf16 or f16. Lane l of 32 sums the elements i ≡ l (mod 32) in ascending order, with
/// a rounded multiply, then a rounded add, starting from +0; then lanes l and l + 16 are added, l and l + 8, and so on
/// down to one.
float dot(const std::byte* a, DType a_dtype, const std::byte* b, DType b_dtype, std::size_t hidden);

}  // namespace shunt
