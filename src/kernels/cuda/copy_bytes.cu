#include <algorithm>

#include "core/cuda/check.hpp"
#include "kernels/cuda/copy_bytes.hpp"
#include "kernels/cuda/geometry.hpp"
#include "kernels/cuda/widths.hpp"

namespace shunt::device {
namespace {

constexpr int kThreads = 512;
constexpr std::size_t kBlockWords = std::size_t{kThreads} * kAccessesPerThread;

/// A block per row and kBlockWords of its words.
template <class Word>
__global__ void copy_bytes_kernel(CopyBytes copy, std::uint32_t blocks_per_row) {
  const std::uint32_t row = blockIdx.x / blocks_per_row;
  const auto* from = reinterpret_cast<const Word*>(copy.from + row * copy.from_stride);
  auto* to = reinterpret_cast<Word*>(copy.to + row * copy.row_bytes);
  const std::size_t num_words = copy.row_bytes / sizeof(Word);
  const std::size_t begin = (blockIdx.x - row * blocks_per_row) * kBlockWords + threadIdx.x;
  Word words[kAccessesPerThread];
#pragma unroll
  for (int i = 0; i < kAccessesPerThread; ++i)
    if (begin + i * kThreads < num_words) words[i] = from[begin + i * kThreads];
#pragma unroll
  for (int i = 0; i < kAccessesPerThread; ++i)
    if (begin + i * kThreads < num_words) to[begin + i * kThreads] = words[i];
}

}  // namespace

void launch(const CopyBytes& copy, cudaStream_t stream) {
  if (copy.row_bytes == 0 || copy.num_rows == 0) return;
  const auto addresses = reinterpret_cast<std::uintptr_t>(copy.from) | reinterpret_cast<std::uintptr_t>(copy.to);
  const RowGeometry row = row_geometry(copy.row_bytes, addresses | copy.from_stride);
  const std::size_t words = copy.row_bytes / static_cast<std::size_t>(row.access_bytes);
  const auto blocks_per_row = static_cast<std::uint32_t>((words + kBlockWords - 1) / kBlockWords);
  for_width(row.access_bytes, [&](auto word) {
    copy_bytes_kernel<decltype(word)>
        <<<blocks_per_row* static_cast<std::uint32_t>(copy.num_rows), kThreads, 0, stream>>>(copy, blocks_per_row);
  });
  check(cudaGetLastError(), "start a copy");
}

void preload_copy_bytes() {
  for_every_width([](auto word) {
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, copy_bytes_kernel<decltype(word)>), "load the copy");
  });
}

}  // namespace shunt::device
