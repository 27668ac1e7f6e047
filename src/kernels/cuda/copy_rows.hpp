// Dispatch: every row from its token into its slot.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "core/cuda/segment.hpp"

namespace shunt::device {

/// Blocks in the order of segments. Segments whose token is −1 are passed over.
struct CopyRows {
  const std::byte* x;         ///< [tokens, row_bytes]
  std::byte* const* out;      ///< [ranks], device: where each rank's rows begin, aligned to 256 bytes
  const Segment* segments;    ///< device
  std::int64_t num_segments;  ///< with those that are passed over
  std::size_t row_bytes;
  const std::uint32_t* stop;  ///< device: nothing is done where it is set
  /// Segments may come in lists, whose first −1 ends them. A block takes so many of a list, one after the other, as
  /// blocks without a row cost time too.
  std::int32_t list_length = 1;
  std::int32_t segments_per_block = 1;
};

void launch(const CopyRows& copy, cudaStream_t stream);
void preload_copy_rows();

}  // namespace shunt::device
