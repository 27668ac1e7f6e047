// A stream that does not synchronise with the default stream.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "core/cuda/check.hpp"

namespace shunt::device {

inline std::shared_ptr<CUstream_st> make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream");
  return {stream, [](cudaStream_t ended) { (void)cudaStreamDestroy(ended); }};
}

}  // namespace shunt::device
