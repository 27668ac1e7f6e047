// Dot products for the gradient of routing weights.
#pragma once

#include <cstddef>

#include "shunt/dtype.hpp"

namespace shunt {

/// Lane l of 32 sums the elements i ≡ l (mod 32) in ascending order, rounded multiply then rounded add, starting from
/// +0; then lanes l and l + 16 are added, l and l + 8, … down to one. f32, bf16 and f16 on either side.
float dot(const std::byte* a, DType a_dtype, const std::byte* b, DType b_dtype, std::size_t hidden);

}  // namespace shunt
