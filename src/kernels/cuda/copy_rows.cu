#include "kernels/cuda/copy_rows.hpp"

#include "core/cuda/check.hpp"
#include "kernels/cuda/access.cuh"
#include "kernels/cuda/element_types.hpp"
#include "kernels/cuda/geometry.hpp"

namespace shunt::device {
namespace {

template <class Word>
__device__ void copy_row(const CopyRows& copy, const Segment& segment, std::int32_t num_words) {
  const auto* from = reinterpret_cast<const Word*>(copy.x + segment.token * copy.row_bytes);
  auto* to = reinterpret_cast<Word*>(copy.out[segment.rank] + segment.slot * copy.row_bytes);
  for (std::int32_t begin = threadIdx.x; begin < num_words; begin += kAccessesPerThread * blockDim.x) {
    Word words[kAccessesPerThread];
#pragma unroll
    for (std::int32_t i = 0; i < kAccessesPerThread; ++i)
      if (const std::int32_t word = begin + i * blockDim.x; word < num_words) words[i] = load_evict_last(from + word);
#pragma unroll
    for (std::int32_t i = 0; i < kAccessesPerThread; ++i)
      if (const std::int32_t word = begin + i * blockDim.x; word < num_words) store_evict_first(to + word, words[i]);
  }
}

template <class Word>
__global__ void copy_rows_kernel(CopyRows copy, std::int32_t num_words, std::uint32_t blocks_per_list) {
  const std::int64_t first = std::int64_t{blockIdx.x / blocks_per_list} * copy.list_length;
  const std::int64_t end = min(first + copy.list_length, copy.num_segments);
  std::int64_t i = first + blockIdx.x % blocks_per_list;
  const auto read = [&] { return i < end ? copy.segments[i] : Segment{.token = -1}; };
  Segment segment = read();
  const std::uint32_t stop = *copy.stop;  // loaded concurrently with the segment
  if (stop != 0) return;
  while (segment.token >= 0) {
    i += blocks_per_list;
    const Segment next = read();
    copy_row<Word>(copy, segment, num_words);
    segment = next;
  }
}

}  // namespace

void launch(const CopyRows& copy, cudaStream_t stream) {
  if (copy.num_segments == 0) return;
  const auto blocks_per_list =
      static_cast<std::uint32_t>((copy.list_length + copy.segments_per_block - 1) / copy.segments_per_block);
  const auto num_lists = static_cast<std::uint32_t>((copy.num_segments + copy.list_length - 1) / copy.list_length);
  const RowGeometry rows = row_geometry(copy.row_bytes, reinterpret_cast<std::uintptr_t>(copy.x));
  for_width(rows.access_bytes, [&](auto word) {
    copy_rows_kernel<decltype(word)>
        <<<num_lists * blocks_per_list, rows.threads, 0, stream>>>(copy, rows.num_accesses, blocks_per_list);
  });
  check(cudaGetLastError(), "start the copy of rows");
}

void preload_copy_rows() {
  for_every_width([](auto word) {
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, copy_rows_kernel<decltype(word)>), "load the copy of rows");
  });
}

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
