#include <algorithm>

#include "core/cuda/check.hpp"
#include "kernels/cuda/copy_bytes.hpp"
#include "kernels/cuda/geometry.hpp"
#include "kernels/cuda/widths.hpp"

namespace shunt::device {
namespace {

constexpr int kThreads = 512;
constexpr std::size_t kBlockWords = std::size_t{kThreads} * kAccessesPerThread;

template <class Word>
__global__ void copy_bytes_kernel(CopyBytes copy) {
  const auto* from = reinterpret_cast<const Word*>(copy.from);
  auto* to = reinterpret_cast<Word*>(copy.to);
  const std::size_t num_words = copy.bytes / sizeof(Word);
  const std::size_t begin = blockIdx.x * kBlockWords + threadIdx.x;
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
  if (copy.bytes == 0) return;
  const auto addresses = reinterpret_cast<std::uintptr_t>(copy.from) | reinterpret_cast<std::uintptr_t>(copy.to);
  const RowGeometry row = row_geometry(copy.bytes, addresses);
  const std::size_t words = copy.bytes / static_cast<std::size_t>(row.access_bytes);
  for_width(row.access_bytes, [&](auto word) {
    copy_bytes_kernel<decltype(word)>
        <<<static_cast<unsigned>((words + kBlockWords - 1) / kBlockWords), kThreads, 0, stream>>>(copy);
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
