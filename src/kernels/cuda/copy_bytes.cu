#include "kernels/cuda/copy_bytes.hpp"

#include <algorithm>

#include "core/cuda/check.hpp"
#include "kernels/cuda/element_types.hpp"
#include "kernels/cuda/geometry.hpp"

namespace shunt::device {
namespace {

constexpr int kThreads = 512;
constexpr std::size_t kBlockWords = std::size_t{kThreads} * kAccessesPerThread;

/// One block for each row and each kBlockWords of its words.
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

namespace {

constexpr std::size_t kAtOnce = 256;  // half of the arguments that a launch can carry

struct Pointers {
  std::byte* at[kAtOnce];
};

__global__ void write_pointers_kernel(std::byte** to, const __grid_constant__ Pointers pointers, unsigned count) {
  if (threadIdx.x < count) to[threadIdx.x] = pointers.at[threadIdx.x];
}

}  // namespace

void launch_write_pointers(std::byte** to, std::span<std::byte* const> pointers, cudaStream_t stream) {
  for (std::size_t begin = 0; begin < pointers.size(); begin += kAtOnce) {
    const std::size_t count = std::min(kAtOnce, pointers.size() - begin);
    Pointers some{};
    std::copy_n(pointers.begin() + static_cast<std::ptrdiff_t>(begin), count, some.at);
    write_pointers_kernel<<<1, kAtOnce, 0, stream>>>(to + begin, some, static_cast<unsigned>(count));
  }
  check(cudaGetLastError(), "write pointers");
}

void preload_write_pointers() {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, write_pointers_kernel), "load the writing of pointers");
}

}  // namespace shunt::device
