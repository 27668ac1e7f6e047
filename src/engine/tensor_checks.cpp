#include "engine/tensor_checks.hpp"

#include "shunt/dtype.hpp"

namespace shunt {
namespace {

/// On devices elements must be aligned to their size.
bool is_aligned(const Call& call, const ConstTensor& tensor, DType dtype) {
  return call.kind == EngineKind::host || reinterpret_cast<std::uintptr_t>(tensor.data) % size_of(dtype) == 0;
}

}  // namespace

std::int64_t TensorChecks::num_scales() const {
  return static_cast<std::int64_t>(scales_per_row(static_cast<std::size_t>(hidden)));
}

void TensorChecks::tensor(const Call& call, std::string_view name, const ConstTensor& tensor, DType dtype,
                          std::int64_t rows, std::int64_t cols) {
  call.demand(tensor.dtype == dtype, "{} is {}, expected {}", name, to_string(tensor.dtype), to_string(dtype));
  call.demand(tensor.rows == rows && tensor.cols == cols, "{} is [{}, {}], expected [{}, {}]", name, tensor.rows,
              tensor.cols, rows, cols);
  call.demand(tensor.rows <= 0 || tensor.data, "{} has no data", name);
  constexpr std::int64_t kMostElements = std::int64_t{1} << 56;
  const bool is_addressable = tensor.rows <= 1 || tensor.row_stride <= kMostElements / tensor.rows;
  call.demand((tensor.row_stride == 0 || tensor.row_stride >= tensor.cols) && is_addressable,
              "{} has a row stride of {} elements, expected at least {}{}", name, tensor.row_stride, tensor.cols,
              is_addressable ? "" : ", and rows within the address space");
  call.demand(is_aligned(call, tensor, dtype), "{} is not aligned to its elements", name);
}

void TensorChecks::dispatch_input(const Call& call, std::int64_t num_tokens, const ConstTensor& x,
                                  const ConstTensor& scales) const {
  const bool quantises = has_scales() && x.dtype != fp8_e4m3;
  tensor(call, "x", x, quantises ? x.dtype : row_dtype, num_tokens, hidden);
  if (x.dtype != fp8_e4m3) return call.demand(!is_given(scales), "scales given, but x is {}", to_string(x.dtype));
  const bool has_shape = scales.rows == num_tokens && (scales.cols == num_scales() || num_tokens == 0);
  const bool has_data = scales.data || num_tokens == 0;
  const bool has_alignment = is_aligned(call, scales, f32);
  call.demand(has_shape && has_data && has_alignment && scales.dtype == f32,
              "fp8 x needs f32 scales [{}, {}], got {}{} [{}, {}]", num_tokens, num_scales(),
              has_alignment ? "" : "misaligned ", to_string(scales.dtype), scales.rows, scales.cols);
}

void TensorChecks::out_scales(const Call& call, const ConstTensor& given, std::int64_t rows) const {
  if (!is_given(given)) return;
  call.demand(has_scales(), "out_scales given, but rows are {}", to_string(row_dtype));
  tensor(call, "out_scales", given, f32, rows, num_scales());
}

}  // namespace shunt
