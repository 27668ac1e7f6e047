// Copies within device memory by a kernel, and pointers written as kernel arguments: no copy, and no host memory that
// must stay valid.
// cudaMemcpyAsync may use a queue that all streams of a process share, in
// which a copy that waits for a peer would block the peer's own copy.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace shunt::device {

struct CopyBytes {
  const std::byte* from;
  std::byte* to;  ///< contiguous rows
  std::size_t row_bytes;
  std::int64_t num_rows = 1;
  std::size_t from_stride = 0;  ///< bytes from the start of a row to the start of the next
};

void launch(const CopyBytes& copy, cudaStream_t stream);
void preload_copy_bytes();

void launch_write_pointers(std::byte** to, std::span<std::byte* const> pointers, cudaStream_t stream);
void preload_write_pointers();

}  // namespace shunt::device
