#include <climits>

#include "core/cuda/check.hpp"
#include "plan/cuda/routing_view.hpp"

namespace shunt::device {
namespace {

constexpr int kThreads = 256;

__global__ void narrow_kernel(NarrowExperts narrow) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= narrow.count) return;
  const std::int64_t expert = narrow.from[i];
  narrow.to[i] = expert > INT_MAX ? INT_MAX : expert < INT_MIN ? INT_MIN : static_cast<std::int32_t>(expert);
}

}  // namespace

void launch(const NarrowExperts& narrow, cudaStream_t stream) {
  if (narrow.count == 0) return;
  narrow_kernel<<<static_cast<unsigned>((narrow.count + kThreads - 1) / kThreads), kThreads, 0, stream>>>(narrow);
  check(cudaGetLastError(), "start to narrow experts");
}

void preload_narrow() {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, narrow_kernel), "load the narrowing of experts");
}

}  // namespace shunt::device
