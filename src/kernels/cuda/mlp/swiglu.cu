#include "core/cuda/check.hpp"
#include "kernels/cuda/element_types.hpp"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/mlp/swiglu.hpp"

namespace shunt::device {
namespace {

constexpr int kThreads = 256;

template <class Element>
constexpr int kWide = 16 / sizeof(Element);

template <class Element>
__global__ void swiglu_kernel(SwiGlu swiglu) {
  using Vector = Elements<Element, kWide<Element>>;
  const std::int64_t num_vectors = swiglu.ffn / kWide<Element>;
  const std::int64_t vector = std::int64_t{blockIdx.y} * kThreads + threadIdx.x;
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
                      static_cast<unsigned>((vectors + kThreads - 1) / kThreads));
    swiglu_kernel<Element><<<blocks, kThreads, 0, stream>>>(swiglu);
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
