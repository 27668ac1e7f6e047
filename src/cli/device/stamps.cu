#include "cli/device/stamps.hpp"

#include "cli/device/memory.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/nanoseconds.cuh"

namespace shunt::cli {
namespace {

__global__ void stamp_kernel(std::uint64_t* time) { *time = device::nanoseconds(); }

}  // namespace

Stamps::Stamps(std::size_t count) : count_(count), times_(allocate_on_device(count * sizeof(std::uint64_t))) {
  cudaFuncAttributes attributes;
  device::check(cudaFuncGetAttributes(&attributes, stamp_kernel), "load the stamp");
}

void Stamps::put(cudaStream_t stream) {
  auto* const time = reinterpret_cast<std::uint64_t*>(times_.get()) + next_;
  stamp_kernel<<<1, 1, 0, stream>>>(time);
  device::check(cudaGetLastError(), "put a stamp");
  next_ = (next_ + 1) % count_;
}

std::vector<std::uint64_t> Stamps::read(cudaStream_t stream) const {
  std::vector<std::uint64_t> times(count_);
  device::check(
      cudaMemcpyAsync(times.data(), times_.get(), count_ * sizeof(std::uint64_t), cudaMemcpyDeviceToHost, stream),
      "read stamps");
  device::check(cudaStreamSynchronize(stream), "read stamps");
  return times;
}

}  // namespace shunt::cli
