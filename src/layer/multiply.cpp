#include "layer/multiply.hpp"

#include <algorithm>

#include "core/fail.hpp"
#include "layer/gemm.hpp"

namespace shunt {
namespace {

Matrix transposed(const Matrix& matrix) {
  return {matrix.data, matrix.cols, matrix.rows, matrix.col_stride, matrix.row_stride};
}

}  // namespace

void multiply(const Matrix& a, const Matrix& b, const Matrix& c, bool adds) {
  SHUNT_CHECK(a.rows == c.rows && b.cols == c.cols && a.cols == b.rows);
  for (const Matrix* each : {&a, &b, &c}) SHUNT_CHECK(each->row_stride == 1 || each->col_stride == 1);
  if (c.rows == 0 || c.cols == 0) return;
  if (c.col_stride != 1) return multiply(transposed(b), transposed(a), transposed(c), adds);
  if (a.cols == 0) {
    for (std::int64_t row = 0; row < c.rows && !adds; ++row) std::fill_n(c.data + row * c.row_stride, c.cols, 0.0f);
    return;
  }
  const bool transposed_a = a.col_stride != 1, transposed_b = b.col_stride != 1;
  run(Sgemm{.rows = c.rows,
            .cols = c.cols,
            .inner = a.cols,
            .a = a.data,
            .leading_a = transposed_a ? a.col_stride : a.row_stride,
            .transposed_a = transposed_a,
            .b = b.data,
            .leading_b = transposed_b ? b.col_stride : b.row_stride,
            .transposed_b = transposed_b,
            .c = c.data,
            .leading_c = c.row_stride,
            .adds = adds});
}

}  // namespace shunt
