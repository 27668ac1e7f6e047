// Divides `token_unique` rows into runs whose expert rows fit a bounded buffer: finds, on the device, the rows of each
// run and the places of their experts' rows in the buffer.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/mlp/tiles.hpp"

namespace shunt::device {

/// This rank's unique rows; all arrays are in device memory, as shunt::PlanArrays describes them.
struct UniqueView {
  const std::int32_t* num_rows;              ///< one word
  const std::int32_t* expert_offsets;        ///< [experts + 1]
  const std::int32_t* expert_counts;         ///< [experts]
  const std::int32_t* unique_of_expert_row;  ///< ascending within an expert
  const std::int32_t* expert_rows;           ///< [rows, topk]; −1 fills the tail
  const std::int32_t* experts;               ///< [rows, topk]
  const float* weights;                      ///< [rows, topk]
  std::int32_t num_experts;
  std::int32_t topk;
};

/// One run of unique rows, in a buffer in which every expert's rows begin with a tile. Device memory.
struct ChunkView {
  const std::int32_t* begin;           ///< [2]: first unique row of this run and of the next
  const std::int32_t* first_row;       ///< [experts]: the run's first expert-major row of each expert
  const std::int32_t* expert_offsets;  ///< [experts + 1]: index of that row in the buffer
};

struct UniqueChunks {
  UniqueView unique;
  ChunkShape shape;
  std::int32_t* begins;          ///< [chunks + 1]
  std::int32_t* first_rows;      ///< [chunks, experts]
  std::int32_t* expert_offsets;  ///< [chunks, experts + 1]
  /// One word: the maximum over all chunks since it was last set to 0; the largest integer if there were more rows than
  /// fit into all chunks.
  std::int32_t* most_tiles;

  [[nodiscard]] ChunkView view(std::int32_t chunk) const {
    const std::int64_t experts = unique.num_experts;
    return {begins + chunk, first_rows + chunk * experts, expert_offsets + chunk * (experts + 1)};
  }
};

void launch(const UniqueChunks& chunks, cudaStream_t stream);

void preload_unique_chunks();

}  // namespace shunt::device
