#include "core/cuda/check.hpp"
#include "core/cuda/nanoseconds.cuh"
#include "support/cuda/stream_work.hpp"

namespace shunt::test {
namespace {

constexpr int kThreads = 1024;

__global__ void __launch_bounds__(kThreads) delay_kernel(std::uint64_t time_ns) {
  const std::uint64_t begin = device::nanoseconds();
  while (device::nanoseconds() - begin < time_ns) {
  }
}

__global__ void __launch_bounds__(kThreads)
    compare_kernel(const std::byte* actual, const std::byte* expected, std::size_t bytes, std::uint32_t number,
                   std::uint32_t* first_bad) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < bytes && actual[i] != expected[i]) atomicMin(first_bad, number);
}

}  // namespace

void preload_stream_work() {
  cudaFuncAttributes attributes;
  device::check(cudaFuncGetAttributes(&attributes, delay_kernel), "load the delay");
  device::check(cudaFuncGetAttributes(&attributes, compare_kernel), "load the comparison");
}

void delay(std::chrono::microseconds time, unsigned blocks, Stream stream) {
  delay_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<std::uint64_t>(time.count()) * 1000);
  device::check(cudaGetLastError(), "start a delay");
}

void compare_later(const std::byte* actual, const std::byte* expected, std::size_t bytes, std::uint32_t number,
                   std::uint32_t* first_bad, Stream stream) {
  if (bytes == 0) return;
  const auto blocks = static_cast<unsigned>((bytes + kThreads - 1) / kThreads);
  compare_kernel<<<blocks, kThreads, 0, stream>>>(actual, expected, bytes, number, first_bad);
  device::check(cudaGetLastError(), "start a comparison");
}

}  // namespace shunt::test
