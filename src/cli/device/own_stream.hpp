// A stream that waits for no other.
#pragma once

#include <cuda_runtime_api.h>

#include "core/cuda/check.hpp"

namespace shunt::cli {

struct OwnStream {
  OwnStream() { device::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream"); }
  ~OwnStream() { (void)cudaStreamDestroy(stream); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  cudaStream_t stream = nullptr;
};

}  // namespace shunt::cli
