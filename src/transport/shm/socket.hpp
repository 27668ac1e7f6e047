// Sequenced-packet Unix sockets that pass descriptors.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace shunt::shm {

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

/// Both throw Error(system) on failure. The name is abstract.
Descriptor listen_at(const std::string& name);
/// Empty while nobody listens there.
std::optional<Descriptor> connect_to(const std::string& name);
/// The next connection of this user's processes; others are turned away. Empty once the deadline has passed.
std::optional<Descriptor> accept_from(const Descriptor& listener, Deadline deadline);
std::pair<Descriptor, Descriptor> socket_pair();

/// What travels while ranks meet: who says it, about whom, and up to two descriptors.
struct Parcel {
  std::uint64_t job_hash = 0;
  std::int32_t rank = 0;
  std::int32_t size = 0;
};

/// False when the other side is gone.
bool send_parcel(const Descriptor& socket, const Parcel& parcel, int first_fd = -1, int second_fd = -1);

struct ReceivedParcel {
  Parcel parcel;
  Descriptor first;
  Descriptor second;
};
/// Empty when the other side is gone, sends something else, or the deadline passes.
std::optional<ReceivedParcel> receive_parcel(const Descriptor& socket, Deadline deadline);

}  // namespace shunt::shm
