// Scalar conversions between float and the narrow formats. They define the rounding that every SIMD target and
// device reproduces bit for bit: to nearest, ties to even.
//
// NaN becomes the quiet NaN of the target with the sign kept. Narrowing to f16 and bf16 overflows to infinity;
// narrowing to e4m3 saturates at ±448, as the format has no infinity.
#pragma once

#include <cstdint>

#include "shunt/language.hpp"

namespace shunt {

float f32_from_bf16(std::uint16_t bits);
std::uint16_t bf16_from_f32(float value);

float f32_from_f16(std::uint16_t bits);
std::uint16_t f16_from_f32(float value);

float f32_from_e4m3(std::uint8_t bits);
std::uint8_t e4m3_from_f32(float value);

}  // namespace shunt
