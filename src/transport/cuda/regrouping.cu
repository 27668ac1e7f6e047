#include "transport/cuda/regrouping.hpp"

#include <algorithm>

#include "core/cuda/check.hpp"
#include "transport/cuda/meeting.cuh"

namespace shunt::device {
namespace {

/// Called by one thread per peer. What the peer said is in `theirs` even if it was something else.
///
/// Ranks try as often as they like and with other lists, so what a peer said before may still stand here: it counts as
/// nothing. A peer writes to this copy of its note only after it has signalled its next try, so the note is whole if
/// the signal is still the same. The acquires' partner is the release in say().
__device__ bool await_try(const Regrouping& regrouping, Patience& patience, std::int32_t peer, Note& theirs) {
  const Control& control = regrouping.elsewhere;
  std::byte* const own = control.blocks[control.self];
  Signal signal(*reinterpret_cast<std::uint32_t*>(own + control.shape.signal(peer)));
  FaultRecord::Cause end = FaultRecord::none;
  while (true) {
    const std::uint32_t number = signal.load(::cuda::memory_order_acquire);
    const Note note = *reinterpret_cast<const Note*>(own + control.shape.note(number, peer));
    ::cuda::atomic_thread_fence(::cuda::memory_order_acquire, ::cuda::thread_scope_system);
    if (signal.load(::cuda::memory_order_relaxed) == number) theirs = note;
    if (theirs.second_offset == regrouping.round && theirs.tag == regrouping.tag) return true;
    if (end != FaultRecord::none) break;
    end = patience.end(control, peer);
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
  __shared__ std::int32_t ahead;  // of this rank: the one that came to most meetings
  __shared__ unsigned long long furthest;
  if (threadIdx.x == 0) ahead = 0;
  if (threadIdx.x == 0) furthest = regrouping.round;
  const std::uint32_t mine = control.progress->meetings;
  const std::uint32_t number = elsewhere.progress->meetings + 1;  // of this try
  __syncthreads();
  if (threadIdx.x == 0) elsewhere.progress->meetings = number;
  for (std::int32_t peer = threadIdx.x; peer < num_ranks; peer += blockDim.x)
    if (std::byte* const block = elsewhere.blocks[peer])
      say(elsewhere, block, number, {.offset = mine, .second_offset = regrouping.round, .tag = regrouping.tag});
  bool all_came = true;
  Patience patience(elsewhere);
  for (std::int32_t peer = threadIdx.x; peer < num_ranks; peer += blockDim.x) {
    if (!elsewhere.blocks[peer]) continue;
    Note theirs{};
    if (await_try(regrouping, patience, peer, theirs))
      atomicMax(&ahead, static_cast<std::int32_t>(static_cast<std::uint32_t>(theirs.offset) - mine));
    else
      all_came = false;
    atomicMax(&furthest, theirs.second_offset);
  }
  all_came = __syncthreads_and(all_came);
  if (threadIdx.x != 0) return;
  *regrouping.furthest = furthest;
  control.progress->fault = all_came ? 0 : 1;
  if (all_came) control.progress->meetings = mine + static_cast<std::uint32_t>(ahead);
  elsewhere.progress->fault = 0;
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
