#include "core/cuda/check.hpp"
#include "core/cuda/choose_copy.cuh"
#include "plan/cuda/choose.hpp"

namespace shunt::device {
namespace {

constexpr int kThreads = 128;  // few, so that small batches spread over multiprocessors

/// A thread per token.
__global__ void __launch_bounds__(kThreads) choose_kernel(const __grid_constant__ RoutingView routing,
                                                          const __grid_constant__ MapTables map, std::int32_t* copies) {
  const std::int64_t token = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (token >= routing.num_tokens) return;
  const std::int32_t* const experts = routing.experts + token * routing.topk;
  std::int32_t* const chosen = copies + token * routing.topk;
  for (std::int32_t choice = 0; choice < routing.topk; ++choice) chosen[choice] = -1;
  choose_copies_of_token(map, routing.self, experts, routing.topk,
                         [&](std::int32_t choice, std::int32_t copy) { chosen[choice] = copy; });
}

}  // namespace

void launch_choose(const RoutingView& routing, const MapTables& map, std::int32_t* copies, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((routing.num_tokens + kThreads - 1) / kThreads);
  if (blocks == 0) return;
  choose_kernel<<<blocks, kThreads, 0, stream>>>(routing, map, copies);
  check(cudaGetLastError(), "start to choose copies");
}

void preload_choose() {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, choose_kernel), "load the choice of copies");
}

}  // namespace shunt::device
