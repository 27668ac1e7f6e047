// What experts made of a run's unique rows, weighted and summed.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/mlp/unique_chunks.hpp"
#include "shunt/dtype.hpp"

namespace shunt::device {

/// y[row][i] = round(sum of weight × rows[place][i]) by ascending expert, in fp32: a rounded multiply, then a rounded
/// add, starting from the first term, as docs/adr/0002 says. A block per unique row, so no two write the same.
struct SumPlaces {
  UniqueView unique;
  ChunkView chunk;
  std::int64_t max_rows;  ///< unique rows of the run, at most
  const std::byte* rows;  ///< [capacity, hidden], aligned to 16 bytes
  std::int64_t capacity;
  std::byte* y;         ///< [unique rows, hidden], aligned to 16 bytes
  std::int64_t hidden;  ///< a multiple of 8
  DType dtype;
};

void launch(const SumPlaces& sum, cudaStream_t stream);
void preload_sum_places();

}  // namespace shunt::device
