#include "transport/cuda/regrouping.hpp"

#include <algorithm>

#include "core/cuda/check.hpp"
#include "transport/cuda/barrier.cuh"

namespace shunt::device {
namespace {

/// Called by one thread per peer. `theirs` is the peer's record, also if its round or tag is another.
///
/// Ranks may try any number of times and with other lists, so a record of an earlier try may still be here; it is
/// ignored. A peer overwrites this copy of its record only after it has signalled its next try, so the record is whole
/// if the signal has not changed. The acquires' partner is the release in signal_peer().
__device__ bool wait_for_try(const Regrouping& regrouping, WaitDeadline& deadline, std::int32_t peer,
                             BarrierRecord& theirs) {
  const Control& control = regrouping.elsewhere;
  std::byte* const own = control.blocks[control.self];
  Signal signal(*reinterpret_cast<std::uint32_t*>(own + control.shape.signal(peer)));
  FaultRecord::Cause end = FaultRecord::none;
  while (true) {
    const std::uint32_t number = signal.load(::cuda::memory_order_acquire);
    const BarrierRecord record = *reinterpret_cast<const BarrierRecord*>(own + control.shape.record(number, peer));
    ::cuda::atomic_thread_fence(::cuda::memory_order_acquire, ::cuda::thread_scope_system);
    if (signal.load(::cuda::memory_order_relaxed) == number) theirs = record;
    if (theirs.second_offset == regrouping.round && theirs.tag == regrouping.tag) return true;
    if (end != FaultRecord::none) break;
    end = deadline.expired(control, peer);
  }
  if (end == FaultRecord::deadline && theirs.second_offset == regrouping.round)
    report(control, {FaultRecord::mismatch, peer, regrouping.tag, theirs.second_offset, theirs.tag});
  else
    report(control, {end, peer, regrouping.tag, regrouping.round, theirs.second_offset});
  return false;
}

__global__ void regrouping_kernel(const __grid_constant__ Regrouping regrouping) {
  const Control& control = regrouping.control;
  const Control& elsewhere = regrouping.elsewhere;
  const std::int32_t num_ranks = elsewhere.shape.num_ranks;
  __shared__ std::int32_t ahead;  // by how many barriers the furthest rank is ahead of this one
  __shared__ unsigned long long furthest;
  if (threadIdx.x == 0) ahead = 0;
  if (threadIdx.x == 0) furthest = regrouping.round;
  const std::uint32_t mine = control.state->barriers;
  const std::uint32_t number = elsewhere.state->barriers + 1;  // of this try
  __syncthreads();
  if (threadIdx.x == 0) elsewhere.state->barriers = number;
  for (std::int32_t peer = threadIdx.x; peer < num_ranks; peer += blockDim.x)
    if (std::byte* const block = elsewhere.blocks[peer])
      signal_peer(elsewhere, block, number, {.offset = mine, .second_offset = regrouping.round, .tag = regrouping.tag});
  bool all_arrived = true;
  WaitDeadline deadline(elsewhere);
  for (std::int32_t peer = threadIdx.x; peer < num_ranks; peer += blockDim.x) {
    if (!elsewhere.blocks[peer]) continue;
    BarrierRecord theirs{};
    if (wait_for_try(regrouping, deadline, peer, theirs))
      atomicMax(&ahead, static_cast<std::int32_t>(static_cast<std::uint32_t>(theirs.offset) - mine));
    else
      all_arrived = false;
    atomicMax(&furthest, theirs.second_offset);
  }
  all_arrived = __syncthreads_and(all_arrived);
  if (threadIdx.x != 0) return;
  *regrouping.furthest = furthest;
  control.state->fault = all_arrived ? 0 : 1;
  if (all_arrived) control.state->barriers = mine + static_cast<std::uint32_t>(ahead);
  elsewhere.state->fault = 0;
}

}  // namespace

void launch(const Regrouping& regrouping, cudaStream_t stream) {
  const int threads = std::clamp(regrouping.control.shape.num_ranks, 1, 1024);
  regrouping_kernel<<<1, threads, 0, stream>>>(regrouping);
  check(cudaGetLastError(), "start to regroup");
}

void preload_regrouping() {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, regrouping_kernel), "load the regrouping");
}

}  // namespace shunt::device
