// Reports lost ranks to kernels that wait for them, within seconds instead of at the deadline.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/world_impl.hpp"
#include "shunt/ids.hpp"
#include "transport/cuda/control.hpp"

namespace shunt::device {

/// A thread that checks all watches ten times a second, as replayed graphs wait without any call on the host. It pings
/// peers only while a kernel is waiting.
class Watchdog {
 public:
  class Watch;

  Watchdog() = default;
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void run();

  std::mutex mutex_;  // guards all of it, and what the watches hold
  std::condition_variable changed_;
  std::set<Watch*> watches_;
  bool is_stopped_ = false;
  std::thread thread_;  // started by the first watch
};

/// Watches the kernels that share these words. Must end before the world.
class Watchdog::Watch {
 public:
  /// The words must be 0, and outlive the watch.
  Watch(Watchdog& watchdog, std::shared_ptr<World::Impl> world, WatchdogWords watchdog_words);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Ignores these ranks from now on, and forgets all losses so far.
  void leave_out(const std::vector<bool>& ranks);

  /// Throws the reason why the rank was reported lost.
  [[noreturn]] void throw_loss(RankId rank, std::string_view operation) const;

 private:
  friend class Watchdog;

  /// The world's fault, unless its culprit was left out.
  [[nodiscard]] std::optional<Fault> fault() const;
  [[nodiscard]] Transport& transport() const { return world_->comm->transport(); }
  void look();

  Watchdog& watchdog_;
  std::shared_ptr<World::Impl> world_;
  WatchdogWords watchdog_words_;
  std::vector<bool> is_left_out_;
};

}  // namespace shunt::device
