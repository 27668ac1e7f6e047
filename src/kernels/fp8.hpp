// fp8 rows with one scale per block of 128 elements.
//
// Per block: amax = the largest magnitude, at least 2^-100; scale = amax / 448; element = e4m3(x × (448 / amax)), each
// operation rounded once in fp32. So a block of zeros gives zeros. A block with a NaN or an infinity has a NaN scale
// and elements 0x7f, so it is dequantised to NaN throughout.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shunt/dtype.hpp"

namespace shunt {

/// source: f32, bf16 or f16; scales: scales_per_row(hidden) values.
void quantise_row(const std::byte* source, DType source_dtype, std::size_t hidden, std::uint8_t* elements,
                  float* scales);

/// target[i] = round(e4m3 value × scale): one rounded multiply, one narrowing.
void dequantise_row(const std::uint8_t* elements, const float* scales, std::size_t hidden, std::byte* target,
                    DType target_dtype);

}  // namespace shunt
