// The barrier of ranks inside a kernel: each rank publishes a record to all peers, and goes on once it has all theirs.
// Kernels wait only here and in regrouping.cu, and only with their last thread block, so that as many ranks fit on one
// GPU as blocks of 1024 threads do.
#pragma once

#include <cuda/atomic>

#include "core/cuda/nanoseconds.cuh"
#include "transport/cuda/control.hpp"

namespace shunt::device {

using Signal = ::cuda::atomic_ref<std::uint32_t, ::cuda::thread_scope_system>;

__device__ inline bool is_faulty(const Control& control) {
  return *static_cast<volatile std::uint32_t*>(&control.state->fault) != 0;
}

/// Only the first fault of a rank is kept.
__device__ inline void report(const Control& control, const FaultRecord& fault) {
  if (atomicExch(&control.state->fault, 1u) != 0) return;
  volatile FaultRecord* record = control.fault;
  record->peer = fault.peer;
  record->tag = fault.tag;
  record->expected = fault.expected;
  record->seen = fault.seen;
  for (std::uint32_t parity = 0; parity < 2; ++parity) {
    const std::byte* const own = control.blocks[control.self] + control.shape.record(parity, control.self);
    record->published[2 * parity] = reinterpret_cast<const BarrierRecord*>(own)->offset;
    record->published[2 * parity + 1] = reinterpret_cast<const BarrierRecord*>(own)->second_offset;
  }
  __threadfence_system();  // the host reads the rest only after it has seen a cause
  record->cause = fault.cause;
}

/// Called by one thread per peer, with the peer's control block. Whatever precedes it on this rank's stream, or
/// precedes a barrier that this thread passed, is visible to the peer that acquires the signal in wait_for_peer().
__device__ inline void signal_peer(const Control& control, std::byte* block, std::uint32_t barrier,
                                   const BarrierRecord& record) {
  *reinterpret_cast<BarrierRecord*>(block + control.shape.record(barrier, control.self)) = record;
  Signal(*reinterpret_cast<std::uint32_t*>(block + control.shape.signal(control.self)))
      .store(barrier, ::cuda::memory_order_release);
}

/// Ends the waits of one thread: at the deadline, or when the host reports a peer lost. The host's words are read
/// rarely, as one read takes about a microsecond.
class WaitDeadline {
 public:
  __device__ explicit WaitDeadline(const Control& control)
      : begin_(nanoseconds()), next_look_(min(kBeforeLooking, control.deadline_ns)) {}

  /// Why waiting for the peer is over, or `none`. A lost peer may have signalled before: check its signal once more.
  __device__ FaultRecord::Cause expired(const Control& control, std::int32_t peer) {
    const std::uint64_t waited = nanoseconds() - begin_;
    if (waited < next_look_) return FaultRecord::none;
    next_look_ = waited + kBetweenLooks;
    if (waited >= control.deadline_ns) return FaultRecord::deadline;
    if (is_faulty(control)) return FaultRecord::lost;  // another thread of this rank has reported
    Signal(control.watchdog_words.waits()).store(1, ::cuda::memory_order_relaxed);
    // The acquire's partner is the release in Watchdog::Watch::look().
    const bool is_lost = Signal(control.watchdog_words.lost(peer)).load(::cuda::memory_order_acquire) != 0;
    return is_lost ? FaultRecord::lost : FaultRecord::none;
  }

 private:
  static constexpr std::uint64_t kBeforeLooking = 1'000'000;
  static constexpr std::uint64_t kBetweenLooks = 100'000;

  std::uint64_t begin_;
  std::uint64_t next_look_;
};

/// Called by one thread per peer, with the own control block. False, and reported, if the peer does not arrive in time,
/// is lost, or arrives with another tag.
__device__ inline bool wait_for_peer(const Control& control, WaitDeadline& deadline, std::int32_t peer,
                                     std::byte* block, std::uint32_t barrier, std::uint64_t tag) {
  Signal signal(*reinterpret_cast<std::uint32_t*>(block + control.shape.signal(peer)));
  std::byte* const heap = control.heaps[peer];
  std::uint32_t seen;
  // Counters may wrap around, so it is their distance that counts. The acquire's partner is the release in
  // signal_peer().
  const auto has_arrived = [&] {
    return static_cast<std::int32_t>((seen = signal.load(::cuda::memory_order_acquire)) - barrier) >= 0;
  };
  while (!has_arrived()) {
    const FaultRecord::Cause cause = deadline.expired(control, peer);
    if (cause == FaultRecord::none || has_arrived()) continue;
    report(control, {cause, peer, tag, barrier, seen});
    return false;
  }
  const BarrierRecord record = *reinterpret_cast<const BarrierRecord*>(block + control.shape.record(barrier, peer));
  control.published[peer] = heap + record.offset;
  control.published[control.shape.num_ranks + peer] = heap + record.second_offset;
  if (record.tag == tag) return true;
  report(control, {FaultRecord::mismatch, peer, tag, record.second_offset, record.tag});
  return false;
}

/// True in the last thread block of the kernel to call it; every block calls it once, with all threads. What the other
/// blocks wrote before, into any rank's memory, happens before what the last one does next: its acquire is the partner
/// of each block's release, and the release of a signal passes that on.
__device__ inline bool is_last_block(KernelState& state) {
  __syncthreads();
  bool is_last = false;
  if (threadIdx.x == 0) {
    ::cuda::atomic_ref<std::uint32_t, ::cuda::thread_scope_device> retired(state.retired);
    is_last = retired.fetch_add(1, ::cuda::memory_order_acq_rel) + 1 == gridDim.x;
    if (is_last) retired.store(0, ::cuda::memory_order_relaxed);
  }
  return __syncthreads_or(is_last);
}

/// Called by all threads of a kernel's only block, or of its last; returns the same on all. Sets control.published.
/// Ranks without a control block are skipped by halves; a whole barrier fails, as the operations around it need every
/// rank. Independent loads are issued side by side, as a barrier's time is all latency.
template <BarrierPart kPart = BarrierPart::whole>
__device__ inline bool pass_barrier(const Control& control, const BarrierRecord& record) {
  constexpr bool kArrives = kPart != BarrierPart::wait;
  const std::int32_t num_ranks = control.shape.num_ranks;
  std::byte* const own = control.blocks[control.self];
  std::byte* const first = threadIdx.x < num_ranks ? control.blocks[threadIdx.x] : nullptr;
  const auto block_of = [&](std::int32_t peer) { return peer == threadIdx.x ? first : control.blocks[peer]; };
  const std::uint32_t barrier = control.state->barriers + (kArrives ? 1 : 0);
  if (__syncthreads_or(is_faulty(control))) return false;  // also orders the read of the counter before its update
  if constexpr (kArrives) {
    if (threadIdx.x == 0) control.state->barriers = barrier;
    for (std::int32_t peer = threadIdx.x; peer < num_ranks; peer += blockDim.x)
      if (std::byte* const block = block_of(peer)) signal_peer(control, block, barrier, record);
  }
  if constexpr (kPart == BarrierPart::arrive) return true;
  bool all_arrived = true;
  WaitDeadline deadline(control);
  for (std::int32_t peer = threadIdx.x; peer < num_ranks; peer += blockDim.x) {
    if (block_of(peer)) {
      all_arrived = wait_for_peer(control, deadline, peer, own, barrier, record.tag) && all_arrived;
    } else if constexpr (kPart == BarrierPart::whole) {
      // A graph that was captured before the rank was left out: its kernels would write to that rank.
      report(control, {FaultRecord::left_out, peer, record.tag});
      all_arrived = false;
    }
  }
  return __syncthreads_and(all_arrived);
}

}  // namespace shunt::device
