// Drives the operations of a world on a thread that also waits for something else.
#pragma once

#include <chrono>
#include <string>

#include "engine/world_impl.hpp"

namespace shunt {

class Driver {
 public:
  explicit Driver(const World& world) : comm_(world.impl()->comm) {}

  /// While it lives, this thread counts as one that drives, so that no other is woken for it.
  [[nodiscard]] Progress::Waiter drive() const { return Progress::Waiter(comm_->progress()); }
  /// Drives until `condition()` holds; sleeps while nothing can move. A thread that makes it hold calls wake().
  template <class Condition>
  void drive_until(const Condition& condition) const {
    comm_->progress().drive_until(condition);
  }
  void wake() const { comm_->transport().wake(); }

  /// Poisons the world, with this rank as the culprit.
  void report(const std::string& why) const {
    Transport& transport = comm_->transport();
    transport.report(ErrorCode::peer_failed, transport.rank(), why);
  }

 private:
  std::shared_ptr<CommContext> comm_;
};

}  // namespace shunt
