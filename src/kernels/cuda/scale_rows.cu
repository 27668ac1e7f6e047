#include "core/cuda/check.hpp"
#include "kernels/cuda/element_types.hpp"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/geometry.hpp"
#include "kernels/cuda/scale_rows.hpp"

namespace shunt::device {
namespace {

template <class In, class Out, int kCount>
__global__ void scale_rows_kernel(ScaleRows scale) {
  const Segment segment = scale.segments[blockIdx.x];
  if (segment.token < 0 || *scale.stop != 0) return;
  const std::int64_t num_vectors = scale.hidden / kCount;
  const auto* from = reinterpret_cast<const Elements<In, kCount>*>(scale.x) + segment.token * num_vectors;
  auto* to = reinterpret_cast<Elements<Out, kCount>*>(scale.out[segment.rank]) + segment.slot * num_vectors;
#pragma unroll 4
  for (std::int64_t vector = threadIdx.x; vector < num_vectors; vector += blockDim.x) {
    const auto values = from[vector];
    Elements<Out, kCount> scaled;
#pragma unroll
    for (int e = 0; e < kCount; ++e) scaled.at[e] = narrow<Out>(__fmul_rn(segment.weight, widen(values.at[e])));
    to[vector] = scaled;
  }
}

template <class In>
constexpr int kWide = 16 / sizeof(In);

}  // namespace

void launch(const ScaleRows& scale, cudaStream_t stream) {
  if (scale.num_segments == 0) return;
  const auto blocks = static_cast<unsigned>(scale.num_segments);
  for_element(scale.x_dtype, [&](auto in) {
    for_element(scale.out_dtype, [&](auto out) {
      using In = decltype(in);
      using Out = decltype(out);
      const auto hidden = static_cast<std::size_t>(scale.hidden);
      const bool is_wide = hidden % kWide<In> == 0 && reinterpret_cast<std::uintptr_t>(scale.x) % 16 == 0;
      const int threads = row_geometry(hidden * sizeof(In), is_wide ? 0 : sizeof(In)).threads;
      if (is_wide)
        scale_rows_kernel<In, Out, kWide<In>><<<blocks, threads, 0, stream>>>(scale);
      else
        scale_rows_kernel<In, Out, 1><<<blocks, threads, 0, stream>>>(scale);
    });
  });
  check(cudaGetLastError(), "start to scale rows");
}

void preload_scale_rows() {
  for_every_pair_of_elements([](auto in, auto out) {
    using In = decltype(in);
    using Out = decltype(out);
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, scale_rows_kernel<In, Out, kWide<In>>), "load the scaling of rows");
    check(cudaFuncGetAttributes(&attributes, scale_rows_kernel<In, Out, 1>), "load the scaling of rows");
  });
}

}  // namespace shunt::device
