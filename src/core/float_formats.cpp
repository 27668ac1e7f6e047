#include "shunt/float_formats.hpp"

#include <bit>
#include <cmath>

namespace shunt {
namespace {

constexpr std::uint32_t kSignBit = 0x8000'0000u;
constexpr std::uint32_t kInfinity = 0x7f80'0000u;

// Rounds a non-negative finite float to a multiple of 2^exponent, ties to even. Exact for the magnitudes used here:
// adding and subtracting 1.5 * 2^(exponent + 23) leaves only the bits at and above 2^exponent.
float round_to_multiple(float magnitude, int exponent) {
  const float shifter = std::ldexp(1.5f, exponent + 23);
  return (magnitude + shifter) - shifter;
}

}  // namespace

float f32_from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

std::uint16_t bf16_from_f32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & ~kSignBit) > kInfinity) return static_cast<std::uint16_t>(((bits & kSignBit) >> 16) | 0x7fc0u);
  const std::uint32_t round_half_even = 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<std::uint16_t>((bits + round_half_even) >> 16);
}

float f32_from_f16(std::uint16_t bits) {
  const std::uint32_t sign = (std::uint32_t{bits} & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7fffu;
  if (magnitude > 0x7c00u) return std::bit_cast<float>(sign | 0x7fc0'0000u);
  if (magnitude == 0x7c00u) return std::bit_cast<float>(sign | kInfinity);
  // After the shift, the exponent is biased by 15 instead of 127; scaling by 2^112 corrects it and normalises
  // subnormals.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | sign);
}

std::uint16_t f16_from_f32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits & kSignBit) >> 16);
  const std::uint32_t magnitude = bits & ~kSignBit;
  if (magnitude > kInfinity) return sign | 0x7e00u;
  if (magnitude >= std::bit_cast<std::uint32_t>(65520.0f)) return sign | 0x7c00u;
  if (magnitude < std::bit_cast<std::uint32_t>(0x1p-14f)) {
    const float rounded = round_to_multiple(std::bit_cast<float>(magnitude), -24);
    return sign | static_cast<std::uint16_t>(rounded * 0x1p24f);
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return sign | static_cast<std::uint16_t>((rounded - (112u << 23)) >> 13);
}

float f32_from_e4m3(std::uint8_t bits) {
  const std::uint32_t sign = (std::uint32_t{bits} & 0x80u) << 24;
  const std::uint32_t magnitude = bits & 0x7fu;
  if (magnitude == 0x7fu) return std::bit_cast<float>(sign | 0x7fc0'0000u);
  // As for f16, with bias 7 instead of 127.
  const float scaled = std::bit_cast<float>(magnitude << 20) * 0x1p120f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | sign);
}

std::uint8_t e4m3_from_f32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint8_t>((bits & kSignBit) >> 24);
  const std::uint32_t magnitude = bits & ~kSignBit;
  if (magnitude > kInfinity) return sign | 0x7fu;
  if (magnitude >= std::bit_cast<std::uint32_t>(448.0f)) return sign | 0x7eu;
  if (magnitude < std::bit_cast<std::uint32_t>(0x1p-6f)) {
    const float rounded = round_to_multiple(std::bit_cast<float>(magnitude), -9);
    return sign | static_cast<std::uint8_t>(rounded * 0x1p9f);
  }
  const std::uint32_t rounded = magnitude + 0x7'ffffu + ((magnitude >> 20) & 1u);
  return sign | static_cast<std::uint8_t>((rounded - (120u << 23)) >> 20);
}

}  // namespace shunt
