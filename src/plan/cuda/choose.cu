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
  // All on their way at once: what is stored between could be what is loaded next, for all that the compiler knows.
  std::int32_t experts[Routing::kMaxTopK], chosen[Routing::kMaxTopK];
  const std::int32_t* const named = routing.experts + token * routing.topk;
#pragma unroll 8
  for (std::int32_t choice = 0; choice < routing.topk; ++choice) {
    experts[choice] = named[choice];
    chosen[choice] = -1;
  }
  for (std::int32_t choice = 1; choice < routing.topk; ++choice)
    for (std::int32_t other = 0; other < choice; ++other)
      if (experts[other] == experts[choice]) experts[choice] = -1;
  choose_copies_of_token(map, routing.self, experts, routing.topk,
                         [&](std::int32_t choice, std::int32_t copy) { chosen[choice] = copy; });
#pragma unroll 8
  for (std::int32_t choice = 0; choice < routing.topk; ++choice) copies[token * routing.topk + choice] = chosen[choice];
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
