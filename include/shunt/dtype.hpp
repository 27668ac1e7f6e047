// Element types of rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "shunt/language.hpp"

namespace shunt {

enum class DType : std::uint8_t {
  f32,
  bf16,
  f16,
  fp8_e4m3,  ///< OCP e4m3 (no infinities, ±448); travels with one f32 scale per kScaleBlock elements
};

inline constexpr DType f32 = DType::f32;
inline constexpr DType bf16 = DType::bf16;
inline constexpr DType f16 = DType::f16;
inline constexpr DType fp8_e4m3 = DType::fp8_e4m3;

/// Elements that share one fp8 scale; a row's last block may be shorter.
inline constexpr std::size_t kScaleBlock = 128;

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return 4;
    case DType::bf16:
    case DType::f16: return 2;
    case DType::fp8_e4m3: return 1;
  }
  return 0;
}

/// Scales that accompany a row of `hidden` fp8 elements.
constexpr std::size_t scales_per_row(std::size_t hidden) { return (hidden + kScaleBlock - 1) / kScaleBlock; }

std::string_view to_string(DType dtype);

/// Accepts the names that to_string gives; throws Error(invalid_argument) with the list of names otherwise.
DType parse_dtype(std::string_view name);

}  // namespace shunt
