// The first pages of every rank's segment: what peers read and write besides rows.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/local/bell.hpp"
#include "transport/local/mailbox.hpp"

namespace shunt {

/// Lives in shared memory; all-zero bytes are its initial state. `num_ranks` mailboxes follow it.
struct Control {
  Bell bell;

  /// The world's fault, packed by FaultWord; used on rank 0's segment alone, so that there is one first fault. It
  /// outlives rank 0's process, as every rank maps the segment. Zero: none.
  alignas(64) std::atomic<std::uint64_t> world_fault;
  /// Explains world_fault if this rank reported it; written before the word, by its release.
  std::array<char, 1024> fault_text;

  /// Set once this rank has left in good order.
  alignas(64) std::atomic<std::uint32_t> left;

  Mailbox* mailboxes() { return reinterpret_cast<Mailbox*>(this + 1); }

  static std::size_t bytes(std::int32_t num_ranks) {
    return sizeof(Control) + static_cast<std::size_t>(num_ranks) * sizeof(Mailbox);
  }
};

}  // namespace shunt
