// Dispatch: copies every row from its token to its slot; or gathers rows of selected tokens, for another node.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "core/cuda/segment.hpp"

namespace shunt::device {

/// Blocks are in the order of segments. Segments with token −1 are skipped.
struct CopyRows {
  const std::byte* x;         ///< [tokens, row_bytes]
  std::byte* const* out;      ///< [ranks], device: where each rank's rows begin, aligned to 256 bytes
  const Segment* segments;    ///< device
  std::int64_t num_segments;  ///< including skipped ones
  std::size_t row_bytes;
  const std::uint32_t* stop;  ///< device; if the word is not 0, the kernel does nothing
  /// Segments may be grouped in lists, which end at their first −1. A block handles several segments of a list in turn,
  /// because blocks without a row cost time too.
  std::int32_t list_length = 1;
  std::int32_t segments_per_block = 1;
};

void launch(const CopyRows& copy, cudaStream_t stream);
void preload_copy_rows();

/// out[i] = x[tokens[i]]. A block per row.
struct GatherRows {
  const std::byte* x;          ///< [rows, row_bytes]
  const std::int32_t* tokens;  ///< [num_rows], device
  std::byte* out;              ///< [num_rows, row_bytes], device or mapped host memory
  std::int64_t num_rows;
  std::size_t row_bytes;
};

void launch(const GatherRows& gather, cudaStream_t stream);
void preload_gather_rows();

}  // namespace shunt::device
