// Sequenced-packet Unix sockets that pass descriptors.
#pragma once

#include <poll.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "shunt/error.hpp"

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
/// A connection that is waiting to be accepted; empty if it was another user's, who is turned away.
std::optional<Descriptor> accept_from(const Descriptor& listener);
std::pair<Descriptor, Descriptor> socket_pair();

/// Waits until one of them can be read or has been closed by the other side; false once the deadline has passed.
bool wait_readable(std::span<pollfd> entries, Deadline deadline);

/// What travels while ranks meet, with up to two descriptors: who speaks or is spoken of, or why the meeting failed.
struct Parcel {
  std::uint64_t job_hash = 0;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  ErrorCode refusal_code = ErrorCode::internal;
  std::array<char, 492> refusal = {};  ///< empty: no refusal
};

/// False when the other side is gone; throws Error(system) when the machine refuses.
bool send_parcel(const Descriptor& socket, const Parcel& parcel, int first_fd = -1, int second_fd = -1);

struct ReceivedParcel {
  Parcel parcel;
  Descriptor first;
  Descriptor second;
};
/// Empty when the other side is gone, sends something else, or the deadline passes.
std::optional<ReceivedParcel> receive_parcel(const Descriptor& socket, Deadline deadline);

}  // namespace shunt::shm
