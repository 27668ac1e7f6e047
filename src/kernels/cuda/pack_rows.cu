#include <algorithm>

#include "core/cuda/check.hpp"
#include "kernels/cuda/element_types.hpp"
#include "kernels/cuda/geometry.hpp"
#include "kernels/cuda/pack_rows.hpp"

namespace shunt::device {
namespace {

constexpr int kShiftThreads = 256;
/// Upper bound on the blocks per source and expert; each copies one row after another.
constexpr std::int32_t kMostBlocksPerRun = 16;

template <class Word>
__global__ void pack_rows_kernel(const __grid_constant__ PackRows pack, std::int32_t num_words) {
  if (*pack.stop != 0) return;
  const auto run = static_cast<std::int32_t>(blockIdx.x);
  const std::int32_t expert = run / pack.num_ranks;
  const auto count_of = [&](std::int32_t other) {
    return pack.sources[other % pack.num_ranks] ? pack.counts[other] : 0;
  };
  std::int32_t begin = 0;
  for (std::int32_t earlier = expert * pack.num_ranks; earlier < run; ++earlier) begin += count_of(earlier);
  const std::int32_t count = count_of(run);
  if (blockIdx.y == 0 && threadIdx.x == 0) {
    pack.begins[run] = begin;
    pack.packed_counts[run] = count;
  }
  const std::int64_t first = std::int64_t{run} * pack.max_tokens;
  const std::int64_t packed_first = std::int64_t{expert} * pack.num_ranks * pack.max_tokens + begin;
  for (auto row = static_cast<std::int32_t>(blockIdx.y); row < count; row += static_cast<std::int32_t>(gridDim.y)) {
    const auto* from = reinterpret_cast<const Word*>(pack.rows) + (first + row) * num_words;
    auto* to = reinterpret_cast<Word*>(pack.packed_rows) + (packed_first + row) * num_words;
#pragma unroll 4
    for (auto word = static_cast<std::int32_t>(threadIdx.x); word < num_words;
         word += static_cast<std::int32_t>(blockDim.x))
      to[word] = from[word];
    for (auto scale = static_cast<std::int32_t>(threadIdx.x); scale < pack.num_scales;
         scale += static_cast<std::int32_t>(blockDim.x))
      pack.packed_scales[(packed_first + row) * pack.num_scales + scale] =
          pack.scales[(first + row) * pack.num_scales + scale];
  }
}

__global__ void shift_terms_kernel(const __grid_constant__ ShiftTerms shift) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kShiftThreads + threadIdx.x;
  if (*shift.stop != 0 || i >= shift.num_tokens * shift.topk) return;
  // Terms beyond the end of a token's list must not be read.
  for (std::int64_t before = i / shift.topk * shift.topk; before <= i; ++before)
    if (shift.terms[before].rank < 0) return;
  Term& term = shift.terms[i];
  const std::int32_t run = term.slot / shift.max_tokens;
  const std::int32_t block = run / shift.num_ranks * shift.num_ranks * shift.max_tokens;
  term.slot = block + shift.begins[term.rank][run] + term.slot % shift.max_tokens;
}

}  // namespace

void launch(const PackRows& pack, cudaStream_t stream) {
  if (pack.num_local == 0) return;
  const auto addresses =
      reinterpret_cast<std::uintptr_t>(pack.rows) | reinterpret_cast<std::uintptr_t>(pack.packed_rows);
  const RowGeometry rows = row_geometry(pack.row_bytes, addresses);
  const dim3 grid(static_cast<unsigned>(pack.num_local * pack.num_ranks),
                  static_cast<unsigned>(std::min(pack.max_tokens, kMostBlocksPerRun)));
  for_width(rows.access_bytes, [&](auto word) {
    pack_rows_kernel<decltype(word)><<<grid, rows.threads, 0, stream>>>(pack, rows.num_accesses);
  });
  check(cudaGetLastError(), "start to pack rows");
}

void launch(const ShiftTerms& shift, cudaStream_t stream) {
  const std::int64_t num_terms = shift.num_tokens * shift.topk;
  if (num_terms == 0) return;
  shift_terms_kernel<<<static_cast<unsigned>((num_terms + kShiftThreads - 1) / kShiftThreads), kShiftThreads, 0,
                       stream>>>(shift);
  check(cudaGetLastError(), "start to find packed rows");
}

void preload_pack_rows() {
  cudaFuncAttributes attributes;
  for_every_width([&](auto word) {
    check(cudaFuncGetAttributes(&attributes, pack_rows_kernel<decltype(word)>), "load the packing of rows");
  });
  check(cudaFuncGetAttributes(&attributes, shift_terms_kernel), "load the packing of rows");
}

}  // namespace shunt::device
