// One open descriptor, and waiting for several.
#pragma once

#include <poll.h>

#include <chrono>
#include <span>
#include <utility>

namespace shunt {

using Deadline = std::chrono::steady_clock::time_point;

/// Owns one descriptor; −1 is none. Every descriptor here is close-on-exec, so that a rank's own children don't keep
/// its sockets open after its death.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

/// Waits until one of them is ready for what it asks or has been closed by the other side; false once the deadline has
/// passed.
bool wait_ready(std::span<pollfd> entries, Deadline deadline);

}  // namespace shunt
