// Where the expert rows of a unique row lie in its run's buffer.
#pragma once

#include <cstdint>

#include "kernels/cuda/mlp/unique_chunks.hpp"
#include "shunt/routing.hpp"

namespace shunt::device {

__device__ inline std::int32_t num_experts_of(const UniqueView& unique, std::int32_t row) {
  const std::int32_t* const rows = unique.expert_rows + std::int64_t{row} * unique.topk;
  std::int32_t count = 0;
  while (count < unique.topk && rows[count] >= 0) ++count;
  return count;
}

/// In shared memory. By ascending expert.
struct PlacesOfRow {
  std::int32_t count;
  std::int32_t at[Routing::kMaxTopK];
  float weight[Routing::kMaxTopK];

  /// By all threads of a block, which has whole warps. What lies beyond the capacity is left out.
  __device__ void find(const UniqueView& unique, const ChunkView& chunk, std::int32_t row, std::int64_t capacity) {
    if (threadIdx.x < 32) find_by_warp(unique, chunk, row, capacity);
    __syncthreads();
  }

 private:
  __device__ void find_by_warp(const UniqueView& unique, const ChunkView& chunk, std::int32_t row,
                               std::int64_t capacity) {
    const auto lane = static_cast<std::int32_t>(threadIdx.x);
    std::int32_t found = 0;
    for (std::int32_t first = 0; first < unique.topk; first += 32) {
      const std::int64_t cell = std::int64_t{row} * unique.topk + first + lane;
      const std::int32_t expert_row = first + lane < unique.topk ? unique.expert_rows[cell] : -1;
      std::int32_t place = -1;
      if (expert_row >= 0) {
        const std::int32_t expert = unique.experts[cell];
        place = chunk.expert_offsets[expert] + expert_row - chunk.first_row[expert];
        if (place >= capacity) place = -1;
      }
      const unsigned kept = __ballot_sync(~0u, place >= 0);
      if (place >= 0) {
        const std::int32_t index = found + __popc(kept & ((1u << lane) - 1));
        at[index] = place;
        weight[index] = unique.weights[cell];
      }
      found += __popc(kept);
    }
    if (lane == 0) count = found;
  }
};

}  // namespace shunt::device
