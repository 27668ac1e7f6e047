// Dispatch on few multiprocessors.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "core/cuda/segment.hpp"

namespace shunt::device {

/// As CopyRows, but token by token: a row is read once and written to all of its slots from shared memory. Few blocks
/// of few threads, each as fast as its multiprocessor can store.
struct BulkCopyRows {
  const std::byte* x;     ///< [tokens, row_bytes], aligned to kBulkAlignment, as row_bytes is
  std::byte* const* out;  ///< [ranks], device: where each rank's rows begin, aligned to 256 bytes
  const Term* terms;      ///< [tokens, topk], device: the slots of each token
  std::int64_t num_tokens;
  std::int32_t topk;  ///< at most kMostRowsOfWarp
  std::size_t row_bytes;
  const std::uint32_t* stop;  ///< device: nothing is done where it is set
};

/// Whether sizes and alignment allow it; else only the plain kernel will do.
bool fits_bulk_copies(const BulkCopyRows& copy);

/// Where fits_bulk_copies(), on at most so many multiprocessors: blocks are as many, and none shares one with another
/// of the kernel.
void launch(const BulkCopyRows& copy, std::int32_t sms, cudaStream_t stream);
void preload_bulk_copy_rows();

/// Whether the current device has bulk copies, and this build has code for them.
bool has_bulk_copies();

}  // namespace shunt::device
