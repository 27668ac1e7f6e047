// The activation between an expert's two products.
#pragma once

#include <cstddef>

#include "shunt/dtype.hpp"

namespace shunt {

/// target[i] = round(gate[i] ÷ (1 + exp(−gate[i])) × up[i]), in f32, bf16 or f16, with every step rounded to fp32. exp
/// is defined below, so that every SIMD target gives the same bits; its relative error is below 2^-22.
///
/// exp(x): x clamped to ±87; n = x × log2(e), rounded to the nearest integer; r = (x − n × kLn2High) − n × kLn2Low;
/// the polynomial kExpTerms of r by Horner's rule, highest power first; times 2^n.
void swiglu_row(const std::byte* gate, const std::byte* up, std::size_t count, DType dtype, std::byte* target);

namespace swiglu {

inline constexpr float kLimit = 87.0f;
inline constexpr float kLog2E = 0x1.715476p+0f;
/// ln 2 in two parts; the first has so few bits that n × kLn2High is exact.
inline constexpr float kLn2High = 0x1.63p-1f;
inline constexpr float kLn2Low = -0x1.bd0106p-13f;
/// 1.5 × 2^23: adding and subtracting it rounds to an integer, which is in the low bits of the intermediate sum.
inline constexpr float kToInteger = 0x1.8p+23f;
/// Coefficients of r^6 down to r^0: the Taylor series; |r| is at most ln 2 / 2.
inline constexpr float kExpTerms[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};

}  // namespace swiglu

}  // namespace shunt
