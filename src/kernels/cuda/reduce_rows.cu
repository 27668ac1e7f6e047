#include <algorithm>

#include "core/cuda/check.hpp"
#include "kernels/cuda/access.cuh"
#include "kernels/cuda/element_types.hpp"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/geometry.hpp"
#include "kernels/cuda/reduce_rows.hpp"
#include "kernels/cuda/tree.cuh"
#include "shunt/routing.hpp"

namespace shunt::device {
namespace {

/// Rows in flight per thread: as many as most models' top-k.
constexpr int kRowsAtOnce = 8;

/// Of a block; more rows' worth of elements are taken in turns. Four such blocks fit on a multiprocessor.
constexpr int kMostThreads = 256;

/// Elements whose sums a thread holds at a time. Few, so that registers are left for rows in flight.
template <int kCount>
constexpr int kSumsAtOnce = kCount < 4 ? kCount : 4;

template <class In, class Out, int kCount>
__global__ void __launch_bounds__(kMostThreads, 4) reduce_rows_kernel(ReduceRows reduce) {
  using Input = PackedElements<In, kCount>;
  using Output = Elements<Out, kCount>;
  __shared__ Term terms[Routing::kMaxTopK];
  __shared__ const Input* rows[Routing::kMaxTopK];
  constexpr int kSums = kSumsAtOnce<kCount>;
  const std::uint32_t stop = *reduce.stop;  // on its way together with the terms
  const std::int64_t token = blockIdx.x;
  const std::int32_t num_vectors = static_cast<std::int32_t>(reduce.hidden / kCount);
  std::int32_t num_terms = 0;
  for (std::int32_t begin = 0; begin < reduce.topk; begin += blockDim.x) {
    const std::int32_t i = begin + threadIdx.x;
    bool exists = false;
    if (i < reduce.topk) {
      terms[i] = reduce.terms[token * reduce.topk + i];
      if (!reduce.weighted) terms[i].weight = 1.0f;
      exists = terms[i].rank >= 0;
      if (exists)
        rows[i] = reinterpret_cast<const Input*>(reduce.rows[terms[i].rank]) +
                  static_cast<std::int64_t>(terms[i].slot) * num_vectors;
    }
    num_terms += __syncthreads_count(exists);
  }
  auto* result = reinterpret_cast<Output*>(reduce.result) + token * num_vectors;
  if (stop != 0) return;
  for (std::int32_t vector = threadIdx.x; vector < num_vectors; vector += blockDim.x) {
    Input values[kRowsAtOnce];
    const auto load = [&](std::int32_t begin) {
#pragma unroll
      for (int i = 0; i < kRowsAtOnce; ++i)
        if (begin + i < num_terms) values[i] = load_once(rows[begin + i] + vector);
    };
    load(0);
    Output sum;
#pragma unroll
    for (int first = 0; first < kCount; first += kSums) {
      if (first > 0 && num_terms > kRowsAtOnce) load(0);
      Tree<kSums> tree;
      for (std::int32_t begin = 0; begin < num_terms; begin += kRowsAtOnce) {
        if (begin > 0) load(begin);
#pragma unroll
        for (int i = 0; i < kRowsAtOnce; ++i) {
          if (begin + i >= num_terms) break;
          const Term& term = terms[begin + i];
          float weighted[kSums];
#pragma unroll
          for (int e = 0; e < kSums; ++e) weighted[e] = __fmul_rn(term.weight, values[i].at(first + e));
          tree.add(weighted, term.closes, reduce.wire_dtype);
        }
      }
#pragma unroll
      for (int e = 0; e < kSums; ++e) sum.at[first + e] = narrow<Out>(num_terms > 0 ? tree.total.at[e] : 0.0f);
    }
    result[vector] = sum;
  }
}

/// Elements per access: 16 bytes of the rows, or one where rows are not aligned to that.
template <class In>
constexpr int kWide = 16 / sizeof(In);

}  // namespace

void launch(const ReduceRows& reduce, cudaStream_t stream) {
  if (reduce.num_tokens == 0) return;
  const auto blocks = static_cast<unsigned>(reduce.num_tokens);
  for_element(reduce.row_dtype, [&](auto in) {
    for_element(reduce.result_dtype, [&](auto out) {
      using In = decltype(in);
      using Out = decltype(out);
      constexpr std::uintptr_t kResultAlignment = alignof(Elements<Out, kWide<In>>);
      const auto hidden = static_cast<std::size_t>(reduce.hidden);
      const bool is_wide =
          hidden % kWide<In> == 0 && reinterpret_cast<std::uintptr_t>(reduce.result) % kResultAlignment == 0;
      const int threads = std::min(row_geometry(hidden * sizeof(In), is_wide ? 0 : sizeof(In)).threads, kMostThreads);
      if (is_wide)
        reduce_rows_kernel<In, Out, kWide<In>><<<blocks, threads, 0, stream>>>(reduce);
      else
        reduce_rows_kernel<In, Out, 1><<<blocks, threads, 0, stream>>>(reduce);
    });
  });
  check(cudaGetLastError(), "start the sum of rows");
}

void preload_reduce_rows() {
  for_every_pair_of_elements([](auto in, auto out) {
    using In = decltype(in);
    using Out = decltype(out);
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, reduce_rows_kernel<In, Out, kWide<In>>), "load the sum of rows");
    check(cudaFuncGetAttributes(&attributes, reduce_rows_kernel<In, Out, 1>), "load the sum of rows");
  });
}

}  // namespace shunt::device
