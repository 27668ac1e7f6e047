// Tells kernels that wait for other ranks what the world knows of them: a lost rank is noticed in seconds, not at the
// deadline.
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

/// A thread that looks ten times a second after all who are watched, as graphs wait without the host knowing of it. It
/// asks peers for a sign of life only while a kernel says that it waits.
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

/// Over the kernels that share a watchdog_words. The world does not end before it.
class Watchdog::Watch {
 public:
  /// The watchdog_words's words are 0, and outlive the watch.
  Watch(Watchdog& watchdog, std::shared_ptr<World::Impl> world, WatchdogWords watchdog_words);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// From now on these ranks are not waited for: what happens to them is no loss, nor is what is known so far.
  void leave_out(const std::vector<bool>& ranks);

  /// Why the rank was reported lost.
  [[noreturn]] void throw_loss(RankId rank, std::string_view operation) const;

 private:
  friend class Watchdog;

  /// The world's fault, unless it is that of a rank that was left out.
  [[nodiscard]] std::optional<Fault> fault() const;
  [[nodiscard]] Transport& transport() const { return world_->fabric->transport(); }
  void look();

  Watchdog& watchdog_;
  std::shared_ptr<World::Impl> world_;
  WatchdogWords watchdog_words_;
  std::vector<bool> is_left_out_;
};

}  // namespace shunt::device
