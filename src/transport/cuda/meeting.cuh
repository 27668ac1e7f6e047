// Ranks meet: each says something to all, and goes on when all have spoken. Kernels wait here (and in regrouping.cu)
// only when they have one block left, so that many ranks fit on one GPU: as many as their blocks of up to 1024 threads
// do.
#pragma once

#include <cuda/atomic>

#include "core/cuda/nanoseconds.cuh"
#include "transport/cuda/control.hpp"

namespace shunt::device {

using Signal = ::cuda::atomic_ref<std::uint32_t, ::cuda::thread_scope_system>;

__device__ inline bool is_faulty(const Control& control) {
  return *static_cast<volatile std::uint32_t*>(&control.progress->fault) != 0;
}

/// The first fault of this rank counts.
__device__ inline void report(const Control& control, const FaultRecord& fault) {
  if (atomicExch(&control.progress->fault, 1u) != 0) return;
  volatile FaultRecord* record = control.fault;
  record->peer = fault.peer;
  record->tag = fault.tag;
  record->expected = fault.expected;
  record->seen = fault.seen;
  __threadfence_system();  // before the cause, without which the host does not look at the rest
  record->cause = fault.cause;
}

/// Called by one thread per peer, with the peer's control block. Everything that happened before on this rank's stream,
/// or before a barrier that this thread passed, is visible to who sees the signal: its partner is the acquire in
/// await().
__device__ inline void say(const Control& control, std::byte* block, std::uint32_t meeting, const Note& note) {
  *reinterpret_cast<Note*>(block + control.shape.note(meeting, control.self)) = note;
  Signal(*reinterpret_cast<std::uint32_t*>(block + control.shape.signal(control.self)))
      .store(meeting, ::cuda::memory_order_release);
}

/// When a thread gives up waiting. Peers share the deadline; whether the host knows of a loss is asked rarely, as
/// reading its memory takes about a microsecond.
class Patience {
 public:
  __device__ explicit Patience(const Control& control)
      : begin_(nanoseconds()), next_look_(min(kBeforeLooking, control.deadline_ns)) {}

  /// Why the peer is not to be waited for, or `none`. Before it was lost it may have come: look for it once more.
  __device__ FaultRecord::Cause end(const Control& control, std::int32_t peer) {
    const std::uint64_t waited = nanoseconds() - begin_;
    if (waited < next_look_) return FaultRecord::none;
    next_look_ = waited + kBetweenLooks;
    if (waited >= control.deadline_ns) return FaultRecord::deadline;
    if (is_faulty(control)) return FaultRecord::lost;  // another thread has told; this one's report is the second
    Signal(control.vigil.waits()).store(1, ::cuda::memory_order_relaxed);
    // The acquire's partner is the release in Watchdog::Watch::look().
    const bool is_lost = Signal(control.vigil.lost(peer)).load(::cuda::memory_order_acquire) != 0;
    return is_lost ? FaultRecord::lost : FaultRecord::none;
  }

 private:
  static constexpr std::uint64_t kBeforeLooking = 1'000'000;
  static constexpr std::uint64_t kBetweenLooks = 100'000;

  std::uint64_t begin_;
  std::uint64_t next_look_;
};

/// Called by one thread per peer, with the own control block; false if the peer did not come in time, is lost, or came
/// for something else.
__device__ inline bool await(const Control& control, Patience& patience, std::int32_t peer, std::byte* block,
                             std::uint32_t meeting, std::uint64_t tag) {
  Signal signal(*reinterpret_cast<std::uint32_t*>(block + control.shape.signal(peer)));
  std::byte* const heap = control.heaps[peer];
  std::uint32_t seen;
  // Counters may wrap around, so it is their distance that counts. The acquire's partner is the release in say().
  const auto has_come = [&] {
    return static_cast<std::int32_t>((seen = signal.load(::cuda::memory_order_acquire)) - meeting) >= 0;
  };
  while (!has_come()) {
    const FaultRecord::Cause cause = patience.end(control, peer);
    if (cause == FaultRecord::none || has_come()) continue;
    report(control, {cause, peer, tag, meeting, seen});
    return false;
  }
  const Note note = *reinterpret_cast<const Note*>(block + control.shape.note(meeting, peer));
  control.shown[peer] = heap + note.offset;
  control.shown[control.shape.num_ranks + peer] = heap + note.second_offset;
  if (note.tag == tag) return true;
  report(control, {FaultRecord::mismatch, peer, tag, note.second_offset, note.tag});
  return false;
}

/// Whether this block is the last of its kernel to come here; all do, once. Called by a whole block, the same on all
/// threads. What the other blocks wrote before, into any rank's memory, happens before what this one does next: each
/// block's release has its partner in the acquire of the last one, and a release of a signal passes it on.
__device__ inline bool is_last_block(Progress& progress) {
  __syncthreads();
  bool is_last = false;
  if (threadIdx.x == 0) {
    ::cuda::atomic_ref<std::uint32_t, ::cuda::thread_scope_device> retired(progress.retired);
    is_last = retired.fetch_add(1, ::cuda::memory_order_acq_rel) + 1 == gridDim.x;
    if (is_last) retired.store(0, ::cuda::memory_order_relaxed);
  }
  return __syncthreads_or(is_last);
}

/// Called by all threads of a kernel's only block, or of its last; the same result on all. Afterwards control.shown is
/// set. Ranks without a block are left out. Loads that don't depend on each other are made side by side: a meeting's
/// time is all latency.
template <MeetingPart kPart = MeetingPart::whole>
__device__ inline bool meet(const Control& control, const Note& note) {
  constexpr bool kSays = kPart != MeetingPart::waiting;
  const std::int32_t num_ranks = control.shape.num_ranks;
  std::byte* const own = control.blocks[control.self];
  std::byte* const first = threadIdx.x < num_ranks ? control.blocks[threadIdx.x] : nullptr;
  const auto block_of = [&](std::int32_t peer) { return peer == threadIdx.x ? first : control.blocks[peer]; };
  const std::uint32_t meeting = control.progress->meetings + (kSays ? 1 : 0);
  if (__syncthreads_or(is_faulty(control))) return false;  // a barrier too: all have read the counter
  if constexpr (kSays) {
    if (threadIdx.x == 0) control.progress->meetings = meeting;
    for (std::int32_t peer = threadIdx.x; peer < num_ranks; peer += blockDim.x)
      if (std::byte* const block = block_of(peer)) say(control, block, meeting, note);
  }
  if constexpr (kPart == MeetingPart::saying) return true;
  bool all_came = true;
  Patience patience(control);
  for (std::int32_t peer = threadIdx.x; peer < num_ranks; peer += blockDim.x)
    if (block_of(peer)) all_came = await(control, patience, peer, own, meeting, note.tag) && all_came;
  return __syncthreads_and(all_came);
}

}  // namespace shunt::device
