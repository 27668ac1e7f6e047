// Selects C++ types for element types and access widths that are known at run time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <vector_types.h>

#include <cstdint>

#include "shunt/dtype.hpp"
#include "shunt/error.hpp"

namespace shunt::device {

/// Calls work(Element{}) for f32, bf16 or f16.
template <class Work>
void for_element(DType dtype, const Work& work) {
  switch (dtype) {
    case DType::f32: return work(float{});
    case DType::bf16: return work(__nv_bfloat16{});
    case DType::f16: return work(__half{});
    case DType::fp8_e4m3: break;
  }
  throw Error(ErrorCode::internal, "no kernel computes with fp8");
}

template <class Work>
void for_every_pair_of_elements(const Work& work) {
  for (const DType a : {f32, bf16, f16})
    for (const DType b : {f32, bf16, f16}) for_element(a, [&](auto x) { for_element(b, [&](auto y) { work(x, y); }); });
}

/// Calls work(Word{}) for an unsigned type of this many bytes.
template <class Work>
void for_width(std::int32_t bytes, const Work& work) {
  switch (bytes) {
    case 16: return work(uint4{});
    case 8: return work(uint2{});
    case 4: return work(std::uint32_t{});
    case 2: return work(std::uint16_t{});
    default: return work(std::uint8_t{});
  }
}

template <class Work>
void for_every_width(const Work& work) {
  for (const std::int32_t bytes : {16, 8, 4, 2, 1}) for_width(bytes, work);
}

}  // namespace shunt::device
