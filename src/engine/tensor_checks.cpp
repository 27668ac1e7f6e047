#include "engine/tensor_checks.hpp"

#include "core/fail.hpp"
#include "shunt/dtype.hpp"

namespace shunt {

std::int64_t TensorChecks::num_scales() const {
  return static_cast<std::int64_t>(scales_per_row(static_cast<std::size_t>(hidden)));
}

void TensorChecks::tensor(std::string_view operation, std::string_view name, const ConstTensor& tensor, DType dtype,
                          std::int64_t rows, std::int64_t cols) const {
  if (tensor.dtype != dtype)
    fail(ErrorCode::invalid_argument, "rank {}: {}: {} is {}, expected {}", rank, operation, name,
         to_string(tensor.dtype), to_string(dtype));
  if (tensor.rows != rows || tensor.cols != cols)
    fail(ErrorCode::invalid_argument, "rank {}: {}: {} is [{}, {}], expected [{}, {}]", rank, operation, name,
         tensor.rows, tensor.cols, rows, cols);
  if (tensor.rows > 0 && !tensor.data)
    fail(ErrorCode::invalid_argument, "rank {}: {}: {} has no data", rank, operation, name);
  if (tensor.row_stride != 0 && tensor.row_stride < tensor.cols)
    fail(ErrorCode::invalid_argument, "rank {}: {}: {} has a row stride of {} elements, expected at least {}", rank,
         operation, name, tensor.row_stride, tensor.cols);
  if (aligned && reinterpret_cast<std::uintptr_t>(tensor.data) % size_of(dtype) != 0)
    fail(ErrorCode::invalid_argument, "rank {}: {}: {} is not aligned to its elements", rank, operation, name);
}

void TensorChecks::dispatch_input(std::string_view operation, std::int64_t num_tokens, const ConstTensor& x,
                                  const ConstTensor& scales) const {
  const bool quantises = has_scales() && x.dtype != fp8_e4m3;
  tensor(operation, "x", x, quantises ? x.dtype : row_dtype, num_tokens, hidden);
  if (x.dtype != fp8_e4m3) {
    if (is_given(scales))
      fail(ErrorCode::invalid_argument, "rank {}: {}: scales given, but x is {}", rank, operation, to_string(x.dtype));
    return;
  }
  const bool is_misaligned = aligned && reinterpret_cast<std::uintptr_t>(scales.data) % sizeof(float) != 0;
  if ((!scales.data && num_tokens > 0) || scales.dtype != f32 || scales.rows != num_tokens ||
      (scales.cols != num_scales() && num_tokens > 0) || is_misaligned)
    fail(ErrorCode::invalid_argument, "rank {}: {}: fp8 x needs f32 scales [{}, {}], got {}{} [{}, {}]", rank,
         operation, num_tokens, num_scales(), is_misaligned ? "misaligned " : "", to_string(scales.dtype), scales.rows,
         scales.cols);
}

void TensorChecks::out_scales(std::string_view operation, const ConstTensor& given, std::int64_t rows) const {
  if (!is_given(given)) return;
  if (!has_scales())
    fail(ErrorCode::invalid_argument, "rank {}: {}: out_scales given, but rows are {}", rank, operation,
         to_string(row_dtype));
  tensor(operation, "out_scales", given, f32, rows, num_scales());
}

}  // namespace shunt
