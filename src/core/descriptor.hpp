// Ownership of file descriptors, which are never standard ones.
#pragma once

#include <utility>

namespace shunt {

/// Moves a descriptor above 2, closing the old one; −1 stays −1, and errno is preserved. If a program was started with
/// closed standard streams, a newly opened file or socket would take their number, and printed text would be written
/// into it. Close-on-exec. Throws Error(system).
int above_standard(int fd);

/// Owns one descriptor; −1 is none. All are close-on-exec, so that a rank's child processes don't keep its sockets open
/// after its death.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(above_standard(fd)) {}
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

}  // namespace shunt
