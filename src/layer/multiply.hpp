// Products of matrices that are parts of tensors.
#pragma once

#include <cstdint>

namespace shunt {

/// f32 in memory; along rows or along columns the stride is 1.
struct Matrix {
  float* data;
  std::int64_t rows, cols;
  std::int64_t row_stride, col_stride;  ///< in elements
};

/// c = a · b, or c += a · b; c overlaps neither a nor b. Computes on the calling thread only; different threads may
/// call it at the same time. Throws Error(unsupported) if this build has no library for products.
void multiply(const Matrix& a, const Matrix& b, const Matrix& c, bool adds);

}  // namespace shunt
