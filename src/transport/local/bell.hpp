// A rank's doorbell: peers ring it, and the rank's threads sleep on it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace shunt {

/// Lives in shared memory; all-zero bytes are a valid bell.
class alignas(64) Bell {
 public:
  [[nodiscard]] std::uint32_t observe() const { return rings_.load(std::memory_order_acquire); }

  /// Skips the system call when no thread sleeps.
  void ring();

  /// Returns once observe() differs from `seen`, after the limit, or, when a signal arrives, early. Spins for at most
  /// `spin` first.
  void sleep(std::uint32_t seen, std::chrono::microseconds limit, std::chrono::microseconds spin = kSpin);

  /// Long enough for a peer that is about to ring, short enough not to starve one that shares the core.
  static constexpr std::chrono::microseconds kSpin{20};

 private:
  std::atomic<std::uint32_t> rings_;
  std::atomic<std::uint32_t> sleepers_;
};

}  // namespace shunt
