#include "core/cuda/check.hpp"
#include "kernels/cuda/access.cuh"
#include "kernels/cuda/element_types.hpp"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/geometry.hpp"
#include "kernels/cuda/mlp/places.cuh"
#include "kernels/cuda/mlp/sum_places.hpp"

namespace shunt::device {
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
