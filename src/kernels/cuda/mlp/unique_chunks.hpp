// `token_unique` rows in runs whose expert rows fit a bounded buffer: which rows form a run, and where in the buffer
// their experts' rows lie. Decided on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/mlp/tiles.hpp"

namespace shunt::device {

/// What a plan says of this rank's unique rows; all device memory, as shunt/device_plan.hpp describes it.
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

/// Of one run of unique rows, in a buffer in which every expert's rows begin with a tile. Device memory.
struct ChunkView {
  const std::int32_t* begin;           ///< [2]: its first unique row, and the next run's
  const std::int32_t* first_row;       ///< [experts]: its first expert-major row of each expert
  const std::int32_t* expert_offsets;  ///< [experts + 1]: where that row lies in the buffer
};

struct UniqueChunks {
  UniqueView unique;
  ChunkShape shape;
  std::int32_t* begins;          ///< [chunks + 1]
  std::int32_t* first_rows;      ///< [chunks, experts]
  std::int32_t* expert_offsets;  ///< [chunks, experts + 1]
  /// One word: of any chunk since it was last set to 0; beyond all numbers if there were more rows than all have room
  /// for.
  std::int32_t* most_tiles;

  [[nodiscard]] ChunkView view(std::int32_t chunk) const {
    const std::int64_t experts = unique.num_experts;
    return {begins + chunk, first_rows + chunk * experts, expert_offsets + chunk * (experts + 1)};
  }
};

void launch(const UniqueChunks& chunks, cudaStream_t stream);

void preload_unique_chunks();

}  // namespace shunt::device
