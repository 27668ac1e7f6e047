// A plain copy within device memory, by a kernel: cudaMemcpyAsync may go through a queue that all streams of a process
// share, in which a copy that waits for a peer would hold up the peer's own.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace shunt::device {

struct CopyBytes {
  const std::byte* from;
  std::byte* to;
  std::size_t bytes;
};

void launch(const CopyBytes& copy, cudaStream_t stream);
void preload_copy_bytes();

}  // namespace shunt::device
