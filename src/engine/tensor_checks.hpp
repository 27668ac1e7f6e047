// Checks of the tensors that callers pass, in host memory and on devices.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/call.hpp"
#include "shunt/tensor.hpp"

namespace shunt {

/// True also for a shape without data, which is an error of the caller, not an omitted tensor.
inline bool is_given(const ConstTensor& tensor) { return tensor.data || tensor.rows != 0; }

/// The checks of an engine. Each throws Error(invalid_argument) that names the call and the cause.
struct TensorChecks {
  DType row_dtype;
  std::int64_t hidden;

  [[nodiscard]] bool has_scales() const { return row_dtype == fp8_e4m3; }
  /// Scales of one fp8 row.
  [[nodiscard]] std::int64_t num_scales() const;

  static void tensor(const Call& call, std::string_view name, const ConstTensor& tensor, DType dtype, std::int64_t rows,
                     std::int64_t cols);
  void dispatch_input(const Call& call, std::int64_t num_tokens, const ConstTensor& x, const ConstTensor& scales) const;
  /// Checks an output for the scales of dispatched rows, which may be omitted.
  void out_scales(const Call& call, const ConstTensor& given, std::int64_t rows) const;
};

}  // namespace shunt
