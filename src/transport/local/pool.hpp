// Hands out blocks of a rank's own segment and decides which freed pages to keep.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "transport/free_ranges.hpp"
#include "transport/local/segment.hpp"
#include "transport/transport.hpp"

namespace shunt {

/// Memory held from the machine never exceeds the recent peak of live bytes plus kReserveBytes: freed pages are kept
/// warm for the next block, as page faults cost as much as a shuffle, but never beyond what was in use a moment ago.
/// Recent is the current second and the one before.
class Pool {
 public:
  /// Manages [control_bytes, segment.bytes()), which must outlive the pool. The first pages are committed here.
  Pool(Segment& segment, std::size_t control_bytes);

  /// Offset of a block of at least `bytes`, aligned to a page. Throws Error(system) when there is no room.
  std::uint64_t allocate(std::size_t bytes);
  void release(std::uint64_t offset);

  [[nodiscard]] std::size_t live_bytes() const;
  [[nodiscard]] std::size_t committed_bytes() const;
  /// Forgets the peak and gives back what exceeds the reserve; true if something did.
  bool trim();

 private:
  std::uint64_t take_cold(std::size_t bytes);
  void cool_until(std::size_t most_warm);
  void note_live_bytes();
  [[nodiscard]] std::size_t most_warm_bytes(std::size_t live_bytes) const;

  mutable std::mutex mutex_;
  Segment& segment_;
  std::size_t control_bytes_;
  FreeRanges warm_;                            // pages are committed
  FreeRanges cold_;                            // they are not
  std::map<std::uint64_t, std::size_t> live_;  // offset → bytes
  std::size_t live_bytes_ = 0;
  std::size_t peak_ = 0;           // of live bytes, in the current second
  std::size_t previous_peak_ = 0;  // in the second before
  std::chrono::steady_clock::time_point second_begin_;
};

}  // namespace shunt
