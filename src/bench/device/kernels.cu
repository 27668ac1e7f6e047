#include "bench/device/kernels.hpp"

#include "bench/device/memory.hpp"
#include "core/cuda/check.hpp"
#include "kernels/cuda/element_types.hpp"
#include "kernels/cuda/elements.cuh"

namespace shunt::bench {
namespace {

constexpr int kThreads = 512;

__global__ void record_sm_kernel(std::uint32_t* sms) {
  if (threadIdx.x != 0) return;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sms[blockIdx.x]));
  __nanosleep(2000);  // so that blocks are spread over all multiprocessors
}

__global__ void store_kernel(uint4* to, std::size_t num_vectors, std::int32_t times) {
  for (std::uint32_t time = 0; time < times; ++time)
    for (std::size_t i = blockIdx.x * std::size_t{kThreads} + threadIdx.x; i < num_vectors; i += gridDim.x * kThreads)
      __stcs(to + i, make_uint4(threadIdx.x, blockIdx.x, time, 0));
}

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

std::vector<std::uint32_t> sms_of(cudaStream_t stream) {
  constexpr unsigned kBlocks = 4096;
  std::vector<std::uint32_t> sms(kBlocks);
  const auto noted = allocate_on_device(kBlocks * sizeof(std::uint32_t));
  record_sm_kernel<<<kBlocks, kThreads, 0, stream>>>(reinterpret_cast<std::uint32_t*>(noted.get()));
  device::check(cudaGetLastError(), "find out where blocks run");
  device::check(cudaStreamSynchronize(stream), "find out where blocks run");
  device::check(cudaMemcpy(sms.data(), noted.get(), kBlocks * sizeof(std::uint32_t), cudaMemcpyDeviceToHost),
                "find out where blocks run");
  return sms;
}

void launch_stores(std::byte* to, std::size_t bytes, std::int32_t times, std::int32_t blocks, cudaStream_t stream) {
  store_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(reinterpret_cast<uint4*>(to), bytes / 16, times);
  device::check(cudaGetLastError(), "launch stores");
}

void fill_with_random_values(std::byte* data, std::size_t count, DType dtype, float scale, std::uint64_t seed,
                             cudaStream_t stream) {
  device::for_element(dtype, [&](auto element) {
    using Element = decltype(element);
    random_values_kernel<Element><<<1024, 256, 0, stream>>>(reinterpret_cast<Element*>(data), count, scale, seed);
  });
  device::check(cudaGetLastError(), "launch a fill of memory");
  device::check(cudaStreamSynchronize(stream), "fill memory");
}

}  // namespace shunt::bench
