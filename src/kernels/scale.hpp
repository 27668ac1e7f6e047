// Scaling of a row, for the gradient of a weighted row.
#pragma once

#include <cstddef>

#include "kernels/store.hpp"
#include "shunt/dtype.hpp"

namespace shunt {

/// target[i] = round(weight × source[i]) for f32, bf16 and f16 on either side; one rounded fp32 multiply, one
/// narrowing.
void scale_row(const std::byte* source, DType source_dtype, float weight, std::size_t hidden, std::byte* target,
               DType target_dtype, Store store);

}  // namespace shunt
