// Copies each of a run's unique rows to the buffer rows of its experts, and sums the experts' weighted results.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/mlp/unique_chunks.hpp"
#include "shunt/dtype.hpp"

namespace shunt::device {

struct SpreadRows {
  UniqueView unique;
  ChunkView chunk;
  std::int64_t max_rows;  ///< upper bound on the unique rows of the run
  const std::byte* x;     ///< [unique rows, row_bytes], aligned to 16 bytes
  std::byte* rows;        ///< [capacity, row_bytes], aligned to 16 bytes
  std::int64_t capacity;  ///< rows beyond it are omitted
  std::size_t row_bytes;  ///< a multiple of 16
};

void launch(const SpreadRows& spread, cudaStream_t stream);
void preload_spread_rows();

/// y[row][i] = round(sum of weight × rows[place][i]) by ascending expert, in fp32: a rounded multiply, then a rounded
/// add, starting from the first term (docs/adr/0002). One block per unique row, so no two write the same row.
struct SumPlaces {
  UniqueView unique;
  ChunkView chunk;
  std::int64_t max_rows;  ///< upper bound on the unique rows of the run
  const std::byte* rows;  ///< [capacity, hidden], aligned to 16 bytes
  std::int64_t capacity;
  std::byte* y;         ///< [unique rows, hidden], aligned to 16 bytes
  std::int64_t hidden;  ///< a multiple of 8
  DType dtype;
};

void launch(const SumPlaces& sum, cudaStream_t stream);
void preload_sum_places();

}  // namespace shunt::device
