#include <cstdint>

#include "core/cuda/check.hpp"
#include "kernels/cuda/access.cuh"
#include "kernels/cuda/element_types.hpp"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/geometry.hpp"
#include "kernels/cuda/mlp/unique_chunks.hpp"
#include "kernels/cuda/mlp/unique_rows.hpp"
#include "shunt/routing.hpp"

namespace shunt::device {
namespace {

/// Indices of the expert rows of a unique row in its run's buffer, by ascending expert. In shared memory.
struct PlacesOfRow {
  std::int32_t count;
  std::int32_t at[Routing::kMaxTopK];
  float weight[Routing::kMaxTopK];

  /// Executed by all threads of a block, which has whole warps. Places beyond the capacity are omitted.
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

__global__ void spread_rows_kernel(SpreadRows spread) {
  const std::int32_t row = spread.chunk.begin[0] + static_cast<std::int32_t>(blockIdx.x);
  if (row >= spread.chunk.begin[1]) return;
  __shared__ PlacesOfRow places;
  places.find(spread.unique, spread.chunk, row, spread.capacity);
  const auto num_vectors = static_cast<std::int64_t>(spread.row_bytes / sizeof(uint4));
  const auto* from = reinterpret_cast<const uint4*>(spread.x) + row * num_vectors;
  auto* to = reinterpret_cast<uint4*>(spread.rows);
#pragma unroll 4
  for (std::int64_t vector = threadIdx.x; vector < num_vectors; vector += blockDim.x) {
    const uint4 value = from[vector];
    for (std::int32_t i = 0; i < places.count; ++i) to[places.at[i] * num_vectors + vector] = value;
  }
}

}  // namespace

void launch(const SpreadRows& spread, cudaStream_t stream) {
  if (spread.max_rows == 0) return;
  const auto threads = static_cast<unsigned>(row_geometry(spread.row_bytes, 0).threads);
  spread_rows_kernel<<<static_cast<unsigned>(spread.max_rows), threads, 0, stream>>>(spread);
  check(cudaGetLastError(), "start to spread rows");
}

void preload_spread_rows() {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, spread_rows_kernel), "load the spreading of rows");
}

namespace {

template <class Element>
__global__ void sum_places_kernel(SumPlaces sum) {
  constexpr int kCount = 16 / sizeof(Element);
  using Input = PackedElements<Element, kCount>;
  const std::int32_t row = sum.chunk.begin[0] + static_cast<std::int32_t>(blockIdx.x);
  if (row >= sum.chunk.begin[1]) return;
  __shared__ PlacesOfRow places;
  places.find(sum.unique, sum.chunk, row, sum.capacity);
  const std::int64_t num_vectors = sum.hidden / kCount;
  const auto* rows = reinterpret_cast<const Input*>(sum.rows);
  auto* to = reinterpret_cast<Elements<Element, kCount>*>(sum.y) + row * num_vectors;
  for (std::int64_t vector = threadIdx.x; vector < num_vectors; vector += blockDim.x) {
    float total[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) total[i] = -0.0f;  // −0 + x is x, bit for bit
#pragma unroll 4
    for (std::int32_t place = 0; place < places.count; ++place) {
      const Input values = load_once(rows + places.at[place] * num_vectors + vector);
#pragma unroll
      for (int i = 0; i < kCount; ++i) total[i] = __fadd_rn(total[i], __fmul_rn(places.weight[place], values.at(i)));
    }
    Elements<Element, kCount> result;
#pragma unroll
    for (int i = 0; i < kCount; ++i) result.at[i] = narrow<Element>(total[i]);
    to[vector] = result;
  }
}

}  // namespace

void launch(const SumPlaces& sum, cudaStream_t stream) {
  if (sum.max_rows == 0) return;
  for_element(sum.dtype, [&](auto element) {
    const std::size_t row_bytes = static_cast<std::size_t>(sum.hidden) * sizeof(element);
    const auto threads = static_cast<unsigned>(row_geometry(row_bytes, 0).threads);
    sum_places_kernel<decltype(element)><<<static_cast<unsigned>(sum.max_rows), threads, 0, stream>>>(sum);
  });
  check(cudaGetLastError(), "start the sum of experts' rows");
}

void preload_sum_places() {
  for (const DType dtype : {f32, bf16, f16})
    for_element(dtype, [](auto element) {
      cudaFuncAttributes attributes;
      check(cudaFuncGetAttributes(&attributes, sum_places_kernel<decltype(element)>), "load the sum of experts' rows");
    });
}

}  // namespace shunt::device
