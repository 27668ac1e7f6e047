// Experts of 64 bits, as PyTorch has them, become the 32 bits that all other kernels read.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace shunt::device {

/// What 32 bits can't hold becomes a number that no expert has either.
struct NarrowExperts {
  const std::int64_t* from;  ///< device
  std::int32_t* to;          ///< device
  std::int64_t count;
};

void launch(const NarrowExperts& narrow, cudaStream_t stream);
void preload_narrow();

}  // namespace shunt::device
