#include <algorithm>

#include "core/cuda/check.hpp"
#include "kernels/cuda/write_pointers.hpp"

namespace shunt::device {
namespace {

constexpr std::size_t kAtOnce = 256;  // half of what a launch can carry

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
