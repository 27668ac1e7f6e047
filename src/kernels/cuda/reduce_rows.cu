#include <algorithm>
#include <array>

#include "core/cuda/early_launch.cuh"
#include "kernels/cuda/access.cuh"
#include "kernels/cuda/element_types.hpp"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/geometry.hpp"
#include "kernels/cuda/reduce_rows.hpp"
#include "kernels/cuda/sum_tree.cuh"
#include "shunt/routing.hpp"

namespace shunt::device {
namespace {

/// Rows in flight per thread; most models' top-k.
constexpr int kRowsAtOnce = 8;

/// Upper bound on the threads of a block; longer rows are processed in several passes.
constexpr int kMostThreads = 256;

/// Blocks that fit on a multiprocessor, limited by the registers for the rows in flight.
template <int kInFlight>
constexpr int kBlocks = kInFlight <= 2 ? 8 : 4;

/// Elements whose sums a thread holds at a time; few, to leave registers for rows in flight.
template <int kCount>
constexpr int kSumsAtOnce = kCount < 4 ? kCount : 4;

/// A term and its row, in shared memory; row is null if the token has no such term.
template <class In, int kCount>
struct Summand {
  Term term;
  const PackedElements<In, kCount>* row;

  /// stop: loaded concurrently with the term, which is invalid if it is not 0, because the plan has failed.
  __device__ void read(const ReduceRows& reduce, std::int64_t token, std::int32_t i, std::uint32_t stop) {
    row = nullptr;
    if (token >= reduce.num_tokens || i >= reduce.topk) return;
    term = reduce.terms[token * reduce.topk + i];
    if (stop != 0 || term.rank < 0) return;
    if (!reduce.weighted) term.weight = 1.0f;
    row = reinterpret_cast<const PackedElements<In, kCount>*>(reduce.rows[term.rank]) +
          term.slot * (reduce.hidden / kCount);
  }
};

/// For top-k up to kRows. A block handles kTokens tokens at once, so that few rows per token keep as many loads in
/// flight as many do, and the dependent loads before a row's address are overlapped.
template <class In, class Out, int kCount, int kRows, int kTokens>
__global__ void __launch_bounds__(kMostThreads, kBlocks<kRows * kTokens>) reduce_rows_kernel(ReduceRows reduce) {
  using Input = PackedElements<In, kCount>;
  using Output = Elements<Out, kCount>;
  constexpr int kSums = kSumsAtOnce<kCount>;
  __shared__ Summand<In, kCount> summands[kTokens][kRows];
  wait_for_stream();
  const std::uint32_t stop = *reduce.stop;
  const std::int64_t first_token = std::int64_t{blockIdx.x} * kTokens;
  if (const int i = threadIdx.x; i < kTokens * kRows)
    summands[i / kRows][i % kRows].read(reduce, first_token + i / kRows, i % kRows, stop);
  __syncthreads();
  if (stop != 0) return;

  const auto num_vectors = static_cast<std::int32_t>(reduce.hidden / kCount);
  auto* result = reinterpret_cast<Output*>(reduce.result) + first_token * num_vectors;
  for (std::int32_t vector = threadIdx.x; vector < num_vectors; vector += blockDim.x) {
    Input values[kTokens][kRows];
#pragma unroll
    for (int token = 0; token < kTokens; ++token)
#pragma unroll
      for (int i = 0; i < kRows; ++i)
        if (const Input* row = summands[token][i].row) values[token][i] = load_once(row + vector);
#pragma unroll
    for (int token = 0; token < kTokens; ++token) {
      if (first_token + token >= reduce.num_tokens) break;
      const bool has_rows = summands[token][0].row != nullptr;
      Output sum;
#pragma unroll
      for (int first = 0; first < kCount; first += kSums) {
        SumTree<kSums> tree;
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          if (!summands[token][i].row) break;
          tree.add(summands[token][i].term, values[token][i], first, reduce.wire_dtype);
        }
#pragma unroll
        for (int e = 0; e < kSums; ++e) sum.at[first + e] = narrow<Out>(has_rows ? tree.total.at[e] : 0.0f);
      }
      store_once(result + token * num_vectors + vector, sum);
    }
  }
}

/// For any top-k: one block per token, in batches of its rows.
template <class In, class Out, int kCount>
__global__ void __launch_bounds__(kMostThreads, kBlocks<kRowsAtOnce>) reduce_many_rows_kernel(ReduceRows reduce) {
  using Input = PackedElements<In, kCount>;
  using Output = Elements<Out, kCount>;
  constexpr int kSums = kSumsAtOnce<kCount>;
  __shared__ Summand<In, kCount> summands[Routing::kMaxTopK];
  wait_for_stream();
  const std::uint32_t stop = *reduce.stop;
  const std::int64_t token = blockIdx.x;
  for (std::int32_t i = threadIdx.x; i < reduce.topk; i += blockDim.x) summands[i].read(reduce, token, i, stop);
  __syncthreads();
  if (stop != 0) return;
  std::int32_t num_rows = 0;
  while (num_rows < reduce.topk && summands[num_rows].row) ++num_rows;

  const auto num_vectors = static_cast<std::int32_t>(reduce.hidden / kCount);
  auto* result = reinterpret_cast<Output*>(reduce.result) + token * num_vectors;
  for (std::int32_t vector = threadIdx.x; vector < num_vectors; vector += blockDim.x) {
    Output sum;
#pragma unroll
    for (int first = 0; first < kCount; first += kSums) {
      SumTree<kSums> tree;
      for (std::int32_t begin = 0; begin < num_rows; begin += kRowsAtOnce) {
        Input values[kRowsAtOnce];
#pragma unroll
        for (int i = 0; i < kRowsAtOnce; ++i)
          if (begin + i < num_rows) values[i] = load_once(summands[begin + i].row + vector);
#pragma unroll
        for (int i = 0; i < kRowsAtOnce; ++i)
          if (begin + i < num_rows) tree.add(summands[begin + i].term, values[i], first, reduce.wire_dtype);
      }
#pragma unroll
      for (int e = 0; e < kSums; ++e) sum.at[first + e] = narrow<Out>(num_rows > 0 ? tree.total.at[e] : 0.0f);
    }
    store_once(result + vector, sum);
  }
}

/// Elements per access: 16 bytes, or one element if rows are not aligned to that.
template <class In>
constexpr int kWide = 16 / sizeof(In);

/// A kernel, the rows per token that it can sum, and the tokens per block.
struct Variant {
  void (*kernel)(ReduceRows);
  int rows;
  int tokens;
};

template <class In, class Out>
constexpr Variant kNarrow{reduce_many_rows_kernel<In, Out, 1>, Routing::kMaxTopK, 1};
/// The first variant with enough rows for the top-k is the fastest; docs/performance.md has the figures.
template <class In, class Out>
constexpr std::array kVariants{Variant{reduce_rows_kernel<In, Out, kWide<In>, 1, 2>, 1, 2},
                               Variant{reduce_rows_kernel<In, Out, kWide<In>, 2, 2>, 2, 2},
                               Variant{reduce_rows_kernel<In, Out, kWide<In>, 4, 2>, 4, 2},
                               Variant{reduce_rows_kernel<In, Out, kWide<In>, 8, 1>, 8, 1},
                               Variant{reduce_many_rows_kernel<In, Out, kWide<In>>, Routing::kMaxTopK, 1}};

}  // namespace

void launch(const ReduceRows& reduce, cudaStream_t stream) {
  if (reduce.num_tokens == 0) return;
  for_element(reduce.row_dtype, [&](auto in) {
    for_element(reduce.result_dtype, [&](auto out) {
      using In = decltype(in);
      using Out = decltype(out);
      constexpr std::uintptr_t kResultAlignment = alignof(Elements<Out, kWide<In>>);
      const auto hidden = static_cast<std::size_t>(reduce.hidden);
      const bool is_wide =
          hidden % kWide<In> == 0 && reinterpret_cast<std::uintptr_t>(reduce.result) % kResultAlignment == 0;
      const int threads = std::min(row_geometry(hidden * sizeof(In), is_wide ? 0 : sizeof(In)).threads, kMostThreads);
      const auto has_room = [&](const Variant& variant) { return reduce.topk <= variant.rows; };
      const Variant chosen = is_wide ? *std::ranges::find_if(kVariants<In, Out>, has_room) : kNarrow<In, Out>;
      const auto blocks = static_cast<unsigned>((reduce.num_tokens + chosen.tokens - 1) / chosen.tokens);
      launch_early(chosen.kernel, blocks, threads, 0, stream, reduce);
    });
  });
  check(cudaGetLastError(), "start the sum of rows");
}

void preload_reduce_rows() {
  for_every_pair_of_elements([](auto in, auto out) {
    using In = decltype(in);
    using Out = decltype(out);
    const auto load = [](const Variant& variant) {
      cudaFuncAttributes attributes;
      check(cudaFuncGetAttributes(&attributes, variant.kernel), "load the sum of rows");
    };
    load(kNarrow<In, Out>);
    for (const Variant& variant : kVariants<In, Out>) load(variant);
  });
}

}  // namespace shunt::device
