// Rows of some tokens, packed one after the other: what travels to another node.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace shunt::device {

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
