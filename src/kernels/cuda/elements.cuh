// Conversion of row elements to fp32 and back, with the bits that shunt/float_formats.hpp defines.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "shunt/dtype.hpp"

namespace shunt::device {

__device__ inline float widen(float value) { return value; }
__device__ inline float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ inline float widen(__half value) { return __half2float(value); }

template <class Element>
__device__ inline Element narrow(float value);

template <>
__device__ inline float narrow<float>(float value) {
  return value;
}
// The hardware's conversion loses the sign of a NaN.
template <>
__device__ inline __nv_bfloat16 narrow<__nv_bfloat16>(float value) {
  if (!isnan(value)) return __float2bfloat16_rn(value);
  return __ushort_as_bfloat16(static_cast<unsigned short>(((__float_as_uint(value) & 0x8000'0000u) >> 16) | 0x7fc0u));
}
template <>
__device__ inline __half narrow<__half>(float value) {
  if (!isnan(value)) return __float2half_rn(value);
  return __ushort_as_half(static_cast<unsigned short>(((__float_as_uint(value) & 0x8000'0000u) >> 16) | 0x7e00u));
}

__device__ inline float round_to(float value, DType dtype) {
  if (dtype == DType::bf16) return widen(narrow<__nv_bfloat16>(value));
  if (dtype == DType::f16) return widen(narrow<__half>(value));
  return value;
}

/// kCount adjacent elements, loaded and stored at once.
template <class Element, int kCount>
struct alignas(sizeof(Element) * kCount > 16 ? 16 : sizeof(Element) * kCount) Elements {
  Element at[kCount];
};

/// Narrows adjacent elements in pairs, which is one hardware instruction, unless one is a NaN, whose sign must be kept.
template <class Element, int kCount>
__device__ inline Elements<Element, kCount> narrow_all(const float (&values)[kCount]) {
  Elements<Element, kCount> result;
  bool has_nan = sizeof(Element) == 4;
#pragma unroll
  for (int i = 0; i < kCount; ++i) has_nan = has_nan || isnan(values[i]);
  if (has_nan) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) result.at[i] = narrow<Element>(values[i]);
    return result;
  }
#pragma unroll
  for (int i = 0; i < kCount; i += 2) {
    if constexpr (std::is_same_v<Element, __nv_bfloat16>)
      reinterpret_cast<__nv_bfloat162&>(result.at[i]) = __floats2bfloat162_rn(values[i], values[i + 1]);
    if constexpr (std::is_same_v<Element, __half>)
      reinterpret_cast<__half2&>(result.at[i]) = __floats2half2_rn(values[i], values[i + 1]);
  }
  return result;
}

/// Adjacent elements as the loaded words: unpacked, half-width elements would take twice the registers.
template <class Element, int kCount>
struct PackedElements {
  static_assert(sizeof(Element) * kCount == 16);
  uint4 words;

  __device__ float at(int i) const {
    const std::uint32_t all[4] = {words.x, words.y, words.z, words.w};
    if constexpr (sizeof(Element) == 4) {
      return __uint_as_float(all[i]);
    } else {
      const std::uint32_t word = all[i / 2];
      if constexpr (std::is_same_v<Element, __nv_bfloat16>)  // one instruction instead of two
        return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff'0000u);
      const auto half = static_cast<unsigned short>(i % 2 == 0 ? word & 0xffffu : word >> 16);
      return widen(__builtin_bit_cast(Element, half));
    }
  }
};
template <class Element>
struct PackedElements<Element, 1> {
  Element element;

  __device__ float at(int) const { return widen(element); }
};

}  // namespace shunt::device
