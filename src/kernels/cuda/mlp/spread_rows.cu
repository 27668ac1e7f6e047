#include "core/cuda/check.hpp"
#include "kernels/cuda/geometry.hpp"
#include "kernels/cuda/mlp/places.cuh"
#include "kernels/cuda/mlp/spread_rows.hpp"

namespace shunt::device {
namespace {

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

}  // namespace shunt::device
