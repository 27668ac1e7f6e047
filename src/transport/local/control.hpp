// The first pages of every rank's segment: what peers read and write besides rows.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shunt/error.hpp"
#include "shunt/ids.hpp"
#include "transport/local/bell.hpp"
#include "transport/local/mailbox.hpp"

namespace shunt {

/// A fault in one atomic word, so that no rank can die half-way through reporting it.
struct FaultWord {
  ErrorCode code;
  RankId culprit;
  RankId reporter;

  /// Never zero, which stands for "no fault".
  [[nodiscard]] std::uint64_t pack() const {
    return (std::uint64_t{1} << 63) | (static_cast<std::uint64_t>(code) << 48) |
           (static_cast<std::uint64_t>(culprit.value) << 24) | static_cast<std::uint64_t>(reporter.value);
  }
  static FaultWord unpack(std::uint64_t word) {
    return {static_cast<ErrorCode>((word >> 48) & 0xff), RankId(static_cast<std::int32_t>((word >> 24) & 0xff'ffff)),
            RankId(static_cast<std::int32_t>(word & 0xff'ffff))};
  }
};

/// Lives in shared memory; all-zero bytes are its initial state. `num_ranks` mailboxes follow it.
struct Control {
  Bell bell;

  /// The world's fault, packed by FaultWord; used on the first rank's segment alone, so that there is one first fault.
  /// It outlives that rank's process, as every rank maps the segment. Zero: none.
  alignas(64) std::atomic<std::uint64_t> world_fault;
  /// Explains world_fault if this rank reported it; written before the word, by its release.
  std::array<char, 1024> fault_text;

  /// Set once this rank has left in good order.
  alignas(64) std::atomic<std::uint32_t> left;

  Mailbox* mailboxes() { return reinterpret_cast<Mailbox*>(this + 1); }

  static std::size_t bytes(std::size_t num_ranks) { return sizeof(Control) + num_ranks * sizeof(Mailbox); }
};

}  // namespace shunt
