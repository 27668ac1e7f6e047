#include "cli/layer/random_values.hpp"
#include "core/cuda/check.hpp"
#include "kernels/cuda/element_types.hpp"
#include "kernels/cuda/elements.cuh"

namespace shunt::cli {
namespace {

template <class Element>
__global__ void random_values_kernel(Element* data, std::size_t count, float scale, std::uint64_t seed) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    std::uint64_t bits = (seed + i) * 0x9e37'79b9'7f4a'7c15u;  // splitmix64
    bits = (bits ^ (bits >> 30)) * 0xbf58'476d'1ce4'e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d0'49bb'1331'11ebu;
    const auto high = static_cast<std::int32_t>(bits >> 40);  // 24 bits
    data[i] = device::narrow<Element>(scale * (static_cast<float>(high) * 0x1p-23f - 1.0f));
  }
}

}  // namespace

void fill_with_random_values(std::byte* data, std::size_t count, DType dtype, float scale, std::uint64_t seed,
                             cudaStream_t stream) {
  device::for_element(dtype, [&](auto element) {
    using Element = decltype(element);
    random_values_kernel<<<1024, 256, 0, stream>>>(reinterpret_cast<Element*>(data), count, scale, seed);
  });
  device::check(cudaGetLastError(), "start to fill memory");
  device::check(cudaStreamSynchronize(stream), "fill memory");
}

}  // namespace shunt::cli
