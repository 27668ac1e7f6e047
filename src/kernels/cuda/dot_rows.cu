#include "core/cuda/check.hpp"
#include "kernels/cuda/dot_rows.hpp"
#include "kernels/cuda/element_types.hpp"
#include "kernels/cuda/elements.cuh"

namespace shunt::device {
namespace {

constexpr int kWarps = 8;
constexpr unsigned kAllLanes = 0xffff'ffffu;

/// The term for a token's choice; rank −1 if there is none.
__device__ Term find_term(const DotRows& dot, std::int64_t token, std::int32_t choice) {
  for (std::int32_t i = 0; i < dot.topk; ++i) {
    const Term term = dot.terms[token * dot.topk + i];
    if (term.rank < 0 || term.choice == choice) return term;
  }
  return {-1, -1, 0.0f, -1, 0};
}

template <class X, class Row>
__global__ void __launch_bounds__(32 * kWarps) dot_rows_kernel(DotRows dot) {
  if (*dot.stop != 0) return;
  const std::int64_t entry = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const std::int32_t lane = threadIdx.x % 32;
  if (entry >= dot.num_tokens * dot.topk) return;
  const std::int64_t token = entry / dot.topk;
  const Term term = find_term(dot, token, static_cast<std::int32_t>(entry % dot.topk));
  float sum = 0.0f;
  if (term.rank >= 0) {
    const auto* x = reinterpret_cast<const X*>(dot.x) + token * dot.hidden;
    const auto* row = reinterpret_cast<const Row*>(dot.rows[term.rank]) + term.slot * dot.hidden;
#pragma unroll 8
    for (std::int64_t i = lane; i < dot.hidden; i += 32) sum = __fadd_rn(sum, __fmul_rn(widen(x[i]), widen(row[i])));
    for (int half = 16; half > 0; half /= 2) sum = __fadd_rn(sum, __shfl_down_sync(kAllLanes, sum, half));
  }
  if (lane == 0) dot.result[entry] = sum;
}

}  // namespace

void launch(const DotRows& dot, cudaStream_t stream) {
  const std::int64_t entries = dot.num_tokens * dot.topk;
  if (entries == 0) return;
  const auto blocks = static_cast<unsigned>((entries + kWarps - 1) / kWarps);
  for_element(dot.x_dtype, [&](auto x) {
    for_element(dot.row_dtype, [&](auto row) {
      dot_rows_kernel<decltype(x), decltype(row)><<<blocks, 32 * kWarps, 0, stream>>>(dot);
    });
  });
  check(cudaGetLastError(), "start dot products");
}

void preload_dot_rows() {
  for_every_pair_of_elements([](auto x, auto row) {
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, dot_rows_kernel<decltype(x), decltype(row)>), "load the dot products");
  });
}

}  // namespace shunt::device
