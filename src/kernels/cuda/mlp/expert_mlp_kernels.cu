#include "core/cuda/check.hpp"
#include "kernels/cuda/element_types.hpp"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/mlp/expert_mlp_kernels.hpp"
#include "kernels/cuda/mlp/tiles.hpp"

namespace shunt::device {
namespace {

constexpr int kPointerThreads = 128;

__global__ void tile_pointers_kernel(TilePointers tiles) {
  const std::int32_t tile = static_cast<std::int32_t>(blockIdx.x * kPointerThreads + threadIdx.x);
  if (tile >= tiles.num_tiles) return;
  const std::int64_t row = std::int64_t{tile} * kTileRows;
  std::int32_t expert = 0;  // the last expert that begins at or before the row, also among empty ones
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
  tile_pointers_kernel<<<static_cast<unsigned>((tiles.num_tiles + kPointerThreads - 1) / kPointerThreads),
                         kPointerThreads, 0, stream>>>(tiles);
  check(cudaGetLastError(), "start to find operands");
}

void preload_tile_pointers() {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, tile_pointers_kernel), "load the search for operands");
}

namespace {

constexpr int kSwiGluThreads = 256;

template <class Element>
constexpr int kWide = 16 / sizeof(Element);

template <class Element>
__global__ void swiglu_kernel(SwiGlu swiglu) {
  using Vector = Elements<Element, kWide<Element>>;
  const std::int64_t num_vectors = swiglu.ffn / kWide<Element>;
  const std::int64_t vector = std::int64_t{blockIdx.y} * kSwiGluThreads + threadIdx.x;
  if (vector >= num_vectors) return;
  auto* gate = reinterpret_cast<Vector*>(swiglu.rows) + std::int64_t{blockIdx.x} * 2 * num_vectors + vector;
  const Vector g = *gate;
  const Vector up = gate[num_vectors];
  Vector result;
#pragma unroll
  for (int i = 0; i < kWide<Element>; ++i) {
    const float value = widen(g.at[i]);
    result.at[i] = narrow<Element>(value / (1.0f + expf(-value)) * widen(up.at[i]));
  }
  *gate = result;
}

}  // namespace

void launch(const SwiGlu& swiglu, cudaStream_t stream) {
  if (swiglu.num_rows == 0) return;
  for_element(swiglu.dtype, [&](auto element) {
    using Element = decltype(element);
    const auto vectors = swiglu.ffn / kWide<Element>;
    const dim3 blocks(static_cast<unsigned>(swiglu.num_rows),
                      static_cast<unsigned>((vectors + kSwiGluThreads - 1) / kSwiGluThreads));
    swiglu_kernel<Element><<<blocks, kSwiGluThreads, 0, stream>>>(swiglu);
  });
  check(cudaGetLastError(), "start the activation");
}

void preload_swiglu() {
  for (const DType dtype : {f32, bf16, f16})
    for_element(dtype, [](auto element) {
      cudaFuncAttributes attributes;
      check(cudaFuncGetAttributes(&attributes, swiglu_kernel<decltype(element)>), "load the activation");
    });
}

}  // namespace shunt::device
