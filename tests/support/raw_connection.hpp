// A connection on which a test sends any bytes.
#pragma once

#include <functional>
#include <string>

#include "transport/net/sockets.hpp"

namespace shunt::test {

/// Its calls wait for the other side, within a limit that only a hang reaches.
class RawConnection {
 public:
  /// Waits until something listens there.
  explicit RawConnection(const net::Endpoint& endpoint);
  /// Waits until something connects.
  explicit RawConnection(const Descriptor& listener);
  /// Waits until this gives a connected socket.
  explicit RawConnection(const std::function<Descriptor()>& connect);

  /// The other side need not read to the end.
  void send(std::span<const std::byte> bytes) const;
  void send(const std::string& text) const { send(net::bytes_of(text)); }
  /// That many bytes; fewer if the other side closes the connection before.
  [[nodiscard]] net::Bytes receive(std::size_t num_bytes) const;
  [[nodiscard]] bool is_closed_by_other_side() const { return receive(1).empty(); }
  /// Closes it so that the other side finds it broken.
  void reset();

  Descriptor& socket() { return socket_; }

 private:
  Descriptor socket_;
};

}  // namespace shunt::test
