// A rank's routing as kernels read it, and its conversion from 64-bit experts, as PyTorch has them, to 32 bits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace shunt::device {

struct RoutingView {
  const std::int32_t* experts;  ///< [tokens, topk], device; −1: dropped
  const std::int32_t* copies;   ///< [tokens, topk], device: launch_choose()'s result; null: experts have one copy each
  const float* weights;         ///< [tokens, topk], device; null: all 1
  std::int64_t num_tokens;
  std::int32_t topk;
  std::int32_t self;
};

/// Values beyond 32 bits saturate, so that they stay invalid experts.
struct NarrowExperts {
  const std::int64_t* from;  ///< device
  std::int32_t* to;          ///< device
  std::int64_t count;
};

void launch(const NarrowExperts& narrow, cudaStream_t stream);
void preload_narrow();

}  // namespace shunt::device
