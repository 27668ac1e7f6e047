// The control block of a rank on a device: what peers write into it to publish memory and to signal barriers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shunt::device {

/// What a rank publishes when it arrives at a barrier.
struct alignas(16) BarrierRecord {
  /// Offsets in the rank's heap of the blocks that peers may use until the next barrier.
  std::uint64_t offset;
  std::uint64_t second_offset;
  std::uint64_t tag;  ///< the operation and its phase (engine/cuda/tag.hpp); equal on all ranks
};

/// A barrier may be split, with other work of the stream between its halves: a rank arrives, and waits for its peers
/// later. Halves alternate, or records would be overwritten before they are read.
enum class BarrierPart : std::uint8_t { whole, arrive, wait };

/// Why a wait on the device ended. In pinned memory: written once by the device, read by the host.
struct FaultRecord {
  enum Cause : std::uint32_t { none, deadline, lost, mismatch, overflow, routing, left_out };
  std::uint32_t cause;
  std::int32_t peer;
  std::uint64_t tag;       ///< the operation of this rank
  std::uint64_t expected;  ///< deadline, lost: the peer's barriers; overflow: the bound; mismatch: its second offset
  std::uint64_t seen;      ///< in its place; mismatch: the peer's tag; routing: the entry
  /// The offsets of this rank's last two records: late peers may still write there.
  std::uint64_t published[4] = {};
};

/// Words in pinned memory between waiting kernels and the host's Watchdog. Neither side waits for the other.
struct WatchdogWords {
  std::uint32_t* words;

  [[nodiscard]] static constexpr std::size_t num_words(std::int32_t num_ranks) {
    return 1 + static_cast<std::size_t>(num_ranks);
  }
  /// Set by the device now and then while it waits, cleared by the host.
  [[nodiscard]] constexpr std::uint32_t& waits() const { return words[0]; }
  /// Set by the host: the rank is lost, so waiting for it is over.
  [[nodiscard]] constexpr std::uint32_t& lost(std::int32_t rank) const { return words[1 + rank]; }
};

/// State that a rank's kernels keep from launch to launch. Only they touch it, one after the other.
struct KernelState {
  std::uint32_t barriers;  ///< at which this rank has arrived
  std::uint32_t fault;     ///< once set, kernels return at once and signal nothing
  std::uint32_t retired;   ///< thread blocks of the running kernel that have finished; 0 between kernels
};

/// Offsets in a control block; equal on all ranks.
///
/// Records and words have two copies, by the parity of the barrier: a rank arrives at barrier n + 2 only after all have
/// arrived at n + 1, so all have read what it published at n. Signals need no copies, as they only grow.
struct ControlShape {
  std::int32_t num_ranks;
  std::int32_t num_words;  ///< that a rank can publish besides its record

  [[nodiscard]] constexpr std::size_t signal(std::int32_t source) const { return static_cast<std::size_t>(source) * 4; }
  [[nodiscard]] constexpr std::size_t record(std::uint32_t barrier, std::int32_t source) const {
    return records_begin() + (copy(barrier) + static_cast<std::size_t>(source)) * sizeof(BarrierRecord);
  }
  [[nodiscard]] constexpr std::size_t words(std::uint32_t barrier, std::int32_t source) const {
    return words_begin() + (copy(barrier) + static_cast<std::size_t>(source)) * static_cast<std::size_t>(num_words) * 4;
  }
  [[nodiscard]] constexpr std::size_t bytes() const {
    return words_begin() + 2 * static_cast<std::size_t>(num_ranks) * static_cast<std::size_t>(num_words) * 4;
  }

 private:
  [[nodiscard]] constexpr std::size_t copy(std::uint32_t barrier) const {
    return (barrier & 1u) * static_cast<std::size_t>(num_ranks);
  }
  [[nodiscard]] constexpr std::size_t records_begin() const {
    return (static_cast<std::size_t>(num_ranks) * 4 + sizeof(BarrierRecord) - 1) / sizeof(BarrierRecord) *
           sizeof(BarrierRecord);
  }
  [[nodiscard]] constexpr std::size_t words_begin() const {
    return records_begin() + 2 * static_cast<std::size_t>(num_ranks) * sizeof(BarrierRecord);
  }
};

/// What a kernel needs to pass barriers. Device pointers; arrays are [ranks] unless stated otherwise.
struct Control {
  std::int32_t self;
  ControlShape shape;
  std::byte* const* heaps;   ///< every rank's heap, as this rank addresses it
  std::byte* const* blocks;  ///< every rank's control block; null for ranks that are left out
  std::byte** published;     ///< [2, ranks]: addresses of the blocks that each rank published at the last barrier
  KernelState* state;
  FaultRecord* fault;            ///< pinned
  WatchdogWords watchdog_words;  ///< pinned
  std::uint64_t deadline_ns;
};

}  // namespace shunt::device
