#include <cub/block/block_scan.cuh>
#include <limits>

#include "core/cuda/check.hpp"
#include "kernels/cuda/mlp/unique_chunks.hpp"

namespace shunt::device {
namespace {

constexpr int kBeginThreads = 1024;
constexpr int kPlaceThreads = 256;

__device__ std::int32_t num_experts_of(const UniqueView& unique, std::int32_t row) {
  const std::int32_t* const rows = unique.expert_rows + std::int64_t{row} * unique.topk;
  std::int32_t count = 0;
  while (count < unique.topk && rows[count] >= 0) ++count;
  return count;
}

/// Run c begins with the first unique row that is preceded by at least c × shape.rows expert rows.
__global__ void find_begins_kernel(UniqueChunks chunks) {
  using Scan = cub::BlockScan<std::int32_t, kBeginThreads>;
  __shared__ typename Scan::TempStorage memory;
  const UniqueView& unique = chunks.unique;
  const std::int32_t num_rows = *unique.num_rows;
  const std::int64_t rows_per_chunk = chunks.shape.rows;
  std::int64_t before_tile = 0;
  for (std::int32_t first = 0; first < num_rows; first += kBeginThreads) {
    const std::int32_t row = first + static_cast<std::int32_t>(threadIdx.x);
    const std::int32_t count = row < num_rows ? num_experts_of(unique, row) : 0;
    std::int32_t earlier = 0;
    std::int32_t in_tile = 0;
    Scan(memory).ExclusiveSum(count, earlier, in_tile);
    const std::int64_t before = before_tile + earlier;
    const std::int64_t next = before / rows_per_chunk + 1;
    if (next < chunks.shape.num_chunks && next * rows_per_chunk <= before + count) chunks.begins[next] = row + 1;
    before_tile += in_tile;
    __syncthreads();  // the memory is reused
  }
  for (std::int32_t chunk = static_cast<std::int32_t>(threadIdx.x); chunk <= chunks.shape.num_chunks;
       chunk += kBeginThreads) {
    if (chunk == 0) chunks.begins[chunk] = 0;
    const bool not_reached = chunk * rows_per_chunk > before_tile || chunk == chunks.shape.num_chunks;
    if (chunk > 0 && not_reached) chunks.begins[chunk] = num_rows;
  }
  if (threadIdx.x == 0 && before_tile > chunks.shape.num_chunks * rows_per_chunk)
    atomicMax(chunks.most_tiles, std::numeric_limits<std::int32_t>::max());
}

/// The first expert-major row of the expert whose unique row is not below `unique_row`.
__device__ std::int32_t lower_bound(const UniqueView& unique, std::int32_t expert, std::int32_t unique_row) {
  std::int32_t begin = unique.expert_offsets[expert];
  std::int32_t end = begin + unique.expert_counts[expert];
  while (begin < end) {
    const std::int32_t middle = begin + (end - begin) / 2;
    if (unique.unique_of_expert_row[middle] < unique_row)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

/// One block per run.
__global__ void place_experts_kernel(UniqueChunks chunks) {
  using Scan = cub::BlockScan<std::int32_t, kPlaceThreads>;
  __shared__ typename Scan::TempStorage memory;
  const UniqueView& unique = chunks.unique;
  const std::int64_t chunk = blockIdx.x;
  std::int32_t* const first_rows = chunks.first_rows + chunk * unique.num_experts;
  std::int32_t* const offsets = chunks.expert_offsets + chunk * (unique.num_experts + 1);
  std::int32_t tiles_before = 0;
  for (std::int32_t first = 0; first < unique.num_experts; first += kPlaceThreads) {
    const std::int32_t expert = first + static_cast<std::int32_t>(threadIdx.x);
    std::int32_t tiles = 0;
    std::int32_t begin = 0;
    if (expert < unique.num_experts) {
      begin = lower_bound(unique, expert, chunks.begins[chunk]);
      const std::int32_t end = lower_bound(unique, expert, chunks.begins[chunk + 1]);
      tiles = (end - begin + kTileRows - 1) / kTileRows;
    }
    std::int32_t earlier = 0;
    std::int32_t in_block = 0;
    Scan(memory).ExclusiveSum(tiles, earlier, in_block);
    if (expert < unique.num_experts) {
      first_rows[expert] = begin;
      offsets[expert] = (tiles_before + earlier) * kTileRows;
    }
    tiles_before += in_block;
    __syncthreads();  // the memory is reused
  }
  if (threadIdx.x != 0) return;
  offsets[unique.num_experts] = tiles_before * kTileRows;
  atomicMax(chunks.most_tiles, tiles_before);
}

}  // namespace

void launch(const UniqueChunks& chunks, cudaStream_t stream) {
  find_begins_kernel<<<1, kBeginThreads, 0, stream>>>(chunks);
  place_experts_kernel<<<static_cast<unsigned>(chunks.shape.num_chunks), kPlaceThreads, 0, stream>>>(chunks);
  check(cudaGetLastError(), "start to divide rows into runs");
}

void preload_unique_chunks() {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, find_begins_kernel), "load the division of rows");
  check(cudaFuncGetAttributes(&attributes, place_experts_kernel), "load the division of rows");
}

}  // namespace shunt::device
