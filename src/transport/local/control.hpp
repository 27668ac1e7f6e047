// The first pages of every rank's segment: what peers read and write besides rows.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/local/bell.hpp"
#include "transport/local/mailbox.hpp"

namespace shunt {

/// A fault in one atomic word, so that no rank can die half-way through reporting it. All zero: none. Aligned as a
/// whole, else clang calls libatomic.
struct alignas(8) FaultWord {
  std::int32_t culprit = 0;
  std::uint16_t reporter = 0;  ///< its place among the ranks of its machine
  std::uint8_t code = 0;       ///< an ErrorCode
  std::uint8_t is_set = 0;
};
static_assert(std::atomic<FaultWord>::is_always_lock_free);

/// Lives in shared memory; all-zero bytes are its initial state. `num_ranks` mailboxes follow it.
struct Control {
  Bell bell;

  /// The world's fault; used on the first rank's segment alone, so that there is one first fault. It outlives that
  /// rank's process, as every rank maps the segment.
  alignas(64) std::atomic<FaultWord> world_fault;
  /// Explains world_fault if this rank reported it; written before the word, by its release.
  std::array<char, 1024> fault_text;

  /// Set once this rank has left in good order.
  alignas(64) std::atomic<std::uint32_t> left;

  Mailbox* mailboxes() { return reinterpret_cast<Mailbox*>(this + 1); }

  static std::size_t bytes(std::size_t num_ranks) { return sizeof(Control) + num_ranks * sizeof(Mailbox); }
};

}  // namespace shunt
