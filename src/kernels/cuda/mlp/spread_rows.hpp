// A run's unique rows, each copied to where its experts' rows lie.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/mlp/unique_chunks.hpp"

namespace shunt::device {

struct SpreadRows {
  UniqueView unique;
  ChunkView chunk;
  std::int64_t max_rows;  ///< unique rows of the run, at most
  const std::byte* x;     ///< [unique rows, row_bytes], aligned to 16 bytes
  std::byte* rows;        ///< [capacity, row_bytes], aligned to 16 bytes
  std::int64_t capacity;  ///< what would lie beyond is left out
  std::size_t row_bytes;  ///< a multiple of 16
};

void launch(const SpreadRows& spread, cudaStream_t stream);
void preload_spread_rows();

}  // namespace shunt::device
