// A plain copy within device memory, by a kernel: cudaMemcpyAsync may go through a queue that all streams of a process
// share, in which a copy that waits for a peer would hold up the peer's own.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace shunt::device {

struct CopyBytes {
  const std::byte* from;
  std::byte* to;  ///< rows one after the other
  std::size_t row_bytes;
  std::int64_t num_rows = 1;
  std::size_t from_stride = 0;  ///< bytes from the beginning of a row to that of the next one
};

void launch(const CopyBytes& copy, cudaStream_t stream);
void preload_copy_bytes();

}  // namespace shunt::device
