#include "shunt/dtype.hpp"

#include <array>

#include "core/fail.hpp"

namespace shunt {
namespace {

constexpr std::array kAll = {DType::f32, DType::bf16, DType::f16, DType::fp8_e4m3};

}  // namespace

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::fp8_e4m3: return "fp8_e4m3";
  }
  return "unknown";
}

DType parse_dtype(std::string_view name) {
  for (const DType dtype : kAll)
    if (to_string(dtype) == name) return dtype;
  fail(ErrorCode::invalid_argument, "unknown dtype '{}': expected f32, bf16, f16 or fp8_e4m3", name);
}

}  // namespace shunt
