// One step of a weighted sum whose terms come one after the other.
#pragma once

#include <cstddef>

#include "kernels/store.hpp"
#include "shunt/dtype.hpp"

namespace shunt {

/// target[i] = round(sum[i] + weight × row[i]): a rounded fp32 multiply, a rounded fp32 add, one narrowing. `row` and
/// `target` are f32, bf16 or f16. `target` may be `sum` itself where target_dtype is f32. The same steps as
/// reduce_row() takes inside a rank, so that terms which never exist at once have the same sum.
void add_weighted_row(const float* sum, const std::byte* row, DType row_dtype, float weight, std::size_t hidden,
                      std::byte* target, DType target_dtype, Store store);

}  // namespace shunt
