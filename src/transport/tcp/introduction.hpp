// How two ends of a connection say who they are.
#pragma once

#include <cstdint>
#include <span>

#include "transport/net/sockets.hpp"
#include "transport/wait_ready.hpp"

namespace shunt::tcp {

using net::Progress;

/// The first bytes in either direction. Whoever knows the session belongs to the job: it was agreed on where both ranks
/// proved that they know the token.
struct Greeting {
  std::uint64_t session = 0;
  std::int32_t from = -1;
  std::int32_t channel = -1;

  bool operator==(const Greeting&) const = default;
};

/// A connection whose other end has not said all of it.
class Introduction {
 public:
  Introduction() = default;
  explicit Introduction(Descriptor socket) : socket_(std::move(socket)) {}

  [[nodiscard]] int fd() const { return socket_.get(); }
  [[nodiscard]] const Descriptor& socket() const { return socket_; }
  Descriptor take_socket() { return std::move(socket_); }

  /// False where the other end has gone. A greeting always fits into an empty connection.
  [[nodiscard]] bool say(const Greeting& greeting) const;
  Progress hear() { return net::receive(fd(), std::as_writable_bytes(std::span(&heard_, 1)), num_heard_); }
  /// Once hear() is done.
  [[nodiscard]] const Greeting& heard() const { return heard_; }

 private:
  Descriptor socket_;
  Greeting heard_;
  std::size_t num_heard_ = 0;
};

}  // namespace shunt::tcp
