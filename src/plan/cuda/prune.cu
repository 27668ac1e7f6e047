#include "core/cuda/check.hpp"
#include "core/cuda/stream.hpp"
#include "plan/cuda/prune.hpp"

namespace shunt::device {
namespace {

// Small blocks, so that a decode batch spreads over multiprocessors. The time per token is some microseconds of
// latency, whatever the number of tokens.
constexpr int kThreads = 32;

__global__ void __launch_bounds__(kThreads) prune_kernel(const __grid_constant__ Prune prune) {
  const std::int64_t token = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (token >= prune.num_tokens) return;
  TokenPruner pruner(prune.arrays, token);
  PrunedToken result;
  if (pruner.find_fault().kind == PruneFault::none)
    result = pruner.prune();
  else
    pruner.pass();
  prune.tokens[token] = result;
}

}  // namespace

void launch(const Prune& prune, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((prune.num_tokens + kThreads - 1) / kThreads);
  if (blocks == 0) return;
  prune_kernel<<<blocks, kThreads, 0, stream>>>(prune);
  check(cudaGetLastError(), "start to prune a routing");
}

void preload_prune() {
  // Launched, not only loaded: the first launch allocates the kernel's local memory, and for that waits until the
  // device is idle.
  const auto stream = make_stream();
  prune_kernel<<<1, kThreads, 0, stream.get()>>>(Prune{.arrays = {}, .num_tokens = 0, .tokens = nullptr});
  check(cudaGetLastError(), "load the pruning");
  check(cudaStreamSynchronize(stream.get()), "load the pruning");
}

}  // namespace shunt::device
