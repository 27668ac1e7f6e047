#include "cli/device/sm_probe.hpp"

#include "cli/device/memory.hpp"
#include "core/cuda/check.hpp"

namespace shunt::cli {
namespace {

constexpr int kThreads = 512;

__global__ void note_sm_kernel(std::uint32_t* sms) {
  if (threadIdx.x != 0) return;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sms[blockIdx.x]));
  __nanosleep(2000);  // so that no multiprocessor gets all blocks
}

__global__ void store_kernel(uint4* to, std::size_t num_vectors, std::int32_t times) {
  for (std::uint32_t time = 0; time < times; ++time)
    for (std::size_t i = blockIdx.x * std::size_t{kThreads} + threadIdx.x; i < num_vectors; i += gridDim.x * kThreads)
      __stcs(to + i, make_uint4(threadIdx.x, blockIdx.x, time, 0));
}

}  // namespace

std::vector<std::uint32_t> sms_of(cudaStream_t stream) {
  constexpr unsigned kBlocks = 4096;
  std::vector<std::uint32_t> sms(kBlocks);
  const auto noted = allocate_on_device(kBlocks * sizeof(std::uint32_t));
  note_sm_kernel<<<kBlocks, kThreads, 0, stream>>>(reinterpret_cast<std::uint32_t*>(noted.get()));
  device::check(cudaGetLastError(), "look where blocks run");
  device::check(cudaStreamSynchronize(stream), "look where blocks run");
  device::check(cudaMemcpy(sms.data(), noted.get(), kBlocks * sizeof(std::uint32_t), cudaMemcpyDeviceToHost),
                "look where blocks run");
  return sms;
}

void launch_stores(std::byte* to, std::size_t bytes, std::int32_t times, std::int32_t blocks, cudaStream_t stream) {
  store_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(reinterpret_cast<uint4*>(to), bytes / 16, times);
  device::check(cudaGetLastError(), "start to store");
}

}  // namespace shunt::cli
