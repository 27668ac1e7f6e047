#include "core/cuda/check.hpp"
#include "kernels/cuda/mlp/tile_pointers.hpp"
#include "kernels/cuda/mlp/tiles.hpp"

namespace shunt::device {
namespace {

constexpr int kThreads = 128;

__global__ void tile_pointers_kernel(TilePointers tiles) {
  const std::int32_t tile = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (tile >= tiles.num_tiles) return;
  const std::int64_t row = std::int64_t{tile} * kTileRows;
  std::int32_t expert = 0;  // the last that begins at or before the row; of empty ones the last, too
  for (std::int32_t end = tiles.num_experts; end - expert > 1;) {
    const std::int32_t middle = (expert + end) / 2;
    (tiles.expert_offsets[middle] <= row ? expert : end) = middle;
  }
  tiles.out.gate_up[tile] = tiles.gate_up + static_cast<std::size_t>(expert) * tiles.gate_up_bytes;
  tiles.out.down[tile] = tiles.down + static_cast<std::size_t>(expert) * tiles.down_bytes;
  tiles.out.x[tile] = tiles.x + static_cast<std::size_t>(row) * tiles.row_bytes;
  tiles.out.inner[tile] = tiles.inner + static_cast<std::size_t>(row) * tiles.inner_row_bytes;
  tiles.out.y[tile] = tiles.y + static_cast<std::size_t>(row) * tiles.row_bytes;
}

}  // namespace

void launch(const TilePointers& tiles, cudaStream_t stream) {
  if (tiles.num_tiles == 0) return;
  tile_pointers_kernel<<<static_cast<unsigned>((tiles.num_tiles + kThreads - 1) / kThreads), kThreads, 0, stream>>>(
      tiles);
  check(cudaGetLastError(), "start to find operands");
}

void preload_tile_pointers() {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, tile_pointers_kernel), "load the search for operands");
}

}  // namespace shunt::device
