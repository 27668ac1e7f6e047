// Waiting for descriptors.
#pragma once

#include <poll.h>

#include <chrono>
#include <span>

#include "core/descriptor.hpp"

namespace shunt {

using Deadline = std::chrono::steady_clock::time_point;

/// Waits until one of them is ready for what it asks or has been closed by the other side; false once the deadline has
/// passed.
bool wait_ready(std::span<pollfd> entries, Deadline deadline);

/// Ends another thread's wait for descriptors, one of which is fd().
class Wake {
 public:
  /// Throws Error(system).
  Wake();

  [[nodiscard]] int fd() const { return event_.get(); }
  /// Makes fd() readable until clear().
  void ring() const;
  void clear() const;

 private:
  Descriptor event_;
};

}  // namespace shunt
