// Dispatch on few multiprocessors.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "core/cuda/segment.hpp"

namespace shunt::device {

/// Copies rows as CopyRows does, but token by token: a row is read once into shared memory, and written from there to
/// all of its slots. Uses few blocks of few threads, each as fast as its multiprocessor can store.
struct BulkCopyRows {
  const std::byte* x;     ///< [tokens, row_bytes], aligned to kBulkAlignment, as row_bytes is
  std::byte* const* out;  ///< [ranks], device: where each rank's rows begin, aligned to 256 bytes
  const Term* terms;      ///< [tokens, topk], device: the slots of each token
  std::int64_t num_tokens;
  std::int32_t topk;  ///< at most kMostRowsOfWarp
  std::size_t row_bytes;
  const std::uint32_t* stop;  ///< device; if the word is not 0, the kernel does nothing
};

/// True if sizes and alignment permit bulk copies; otherwise use CopyRows.
bool fits_bulk_copies(const BulkCopyRows& copy);

/// Requires fits_bulk_copies(). Runs on at most `sms` multiprocessors, with one block of the kernel on each.
void launch(const BulkCopyRows& copy, std::int32_t sms, cudaStream_t stream);
void preload_bulk_copy_rows();

/// True if the current device has bulk copies, and this build has code for them.
bool has_bulk_copies();

}  // namespace shunt::device
