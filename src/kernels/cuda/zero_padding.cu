#include "core/cuda/check.hpp"
#include "kernels/cuda/element_types.hpp"
#include "kernels/cuda/geometry.hpp"
#include "kernels/cuda/zero_padding.hpp"

namespace shunt::device {
namespace {

constexpr int kThreads = 256;

template <class Word>
__global__ void zero_padding_kernel(ZeroPadding padding, std::int32_t words_per_row) {
  if (*padding.stop != 0) return;
  const std::int32_t expert = blockIdx.x;
  auto* words = reinterpret_cast<Word*>(padding.rows);
  const std::int64_t begin = padding.offsets[expert] + padding.counts[expert];
  const std::int64_t end = std::int64_t{padding.offsets[expert + 1]} * words_per_row;
  for (std::int64_t word = begin * words_per_row + threadIdx.x; word < end; word += kThreads) words[word] = Word{};
}

}  // namespace

void launch(const ZeroPadding& padding, cudaStream_t stream) {
  if (padding.num_experts == 0) return;
  const RowGeometry rows = row_geometry(padding.row_bytes, 0);
  for_width(rows.access_bytes, [&](auto word) {
    zero_padding_kernel<decltype(word)>
        <<<static_cast<unsigned>(padding.num_experts), kThreads, 0, stream>>>(padding, rows.num_accesses);
  });
  check(cudaGetLastError(), "start to zero padding");
}

void preload_zero_padding() {
  for_every_width([](auto word) {
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, zero_padding_kernel<decltype(word)>), "load the zeroing of padding");
  });
}

}  // namespace shunt::device
