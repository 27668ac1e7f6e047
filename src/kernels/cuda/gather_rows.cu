#include "core/cuda/check.hpp"
#include "kernels/cuda/gather_rows.hpp"
#include "kernels/cuda/geometry.hpp"
#include "kernels/cuda/widths.hpp"

namespace shunt::device {
namespace {

template <class Word>
__global__ void gather_rows_kernel(GatherRows gather, std::int32_t num_words) {
  const std::int64_t row = blockIdx.x;
  const auto* from = reinterpret_cast<const Word*>(gather.x + gather.tokens[row] * gather.row_bytes);
  auto* to = reinterpret_cast<Word*>(gather.out + row * gather.row_bytes);
  for (std::int32_t begin = threadIdx.x; begin < num_words; begin += kAccessesPerThread * blockDim.x) {
    Word words[kAccessesPerThread];
#pragma unroll
    for (std::int32_t i = 0; i < kAccessesPerThread; ++i)
      if (const std::int32_t word = begin + i * blockDim.x; word < num_words) words[i] = from[word];
#pragma unroll
    for (std::int32_t i = 0; i < kAccessesPerThread; ++i)
      if (const std::int32_t word = begin + i * blockDim.x; word < num_words) to[word] = words[i];
  }
}

}  // namespace

void launch(const GatherRows& gather, cudaStream_t stream) {
  if (gather.num_rows == 0) return;
  const auto addresses = reinterpret_cast<std::uintptr_t>(gather.x) | reinterpret_cast<std::uintptr_t>(gather.out);
  const RowGeometry rows = row_geometry(gather.row_bytes, addresses);
  for_width(rows.access_bytes, [&](auto word) {
    gather_rows_kernel<decltype(word)>
        <<<static_cast<unsigned>(gather.num_rows), rows.threads, 0, stream>>>(gather, rows.num_accesses);
  });
  check(cudaGetLastError(), "start to gather rows");
}

void preload_gather_rows() {
  for_every_width([](auto word) {
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, gather_rows_kernel<decltype(word)>), "load the gathering of rows");
  });
}

}  // namespace shunt::device
