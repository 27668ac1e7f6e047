// The bytes of one TCP connection.
#pragma once

#include <optional>
#include <span>

#include "transport/net/bytes.hpp"
#include "transport/wait_ready.hpp"

namespace shunt::net {

/// Never waits: what the network does not take yet is kept, what has not come yet is none.
class Stream {
 public:
  explicit Stream(Descriptor socket) : socket_(std::move(socket)) {}

  [[nodiscard]] const Descriptor& socket() const { return socket_; }
  /// True once nothing more can be received; what came before was received.
  [[nodiscard]] bool is_lost() const { return is_lost_; }
  void hang_up() { is_lost_ = true; }

  /// What to wait for.
  [[nodiscard]] pollfd awaited() const;
  void send(std::span<const std::byte> bytes);
  void flush();
  /// True once the network has taken all; also when the other side listens no more, which `receive` will find out.
  [[nodiscard]] bool is_flushed() const { return unsent_.empty(); }

  /// So many of the other side's bytes, once they are all here. Until then ask for the same number again. Takes not one
  /// byte more out of the network.
  std::optional<Bytes> receive(std::size_t num_bytes);

  /// Says that nothing more will be sent.
  void end_sending();
  /// Throws away what comes, so that closing does not destroy what the other side has not yet read.
  void discard();

 private:
  Descriptor socket_;
  bool is_lost_ = false;
  Bytes unsent_;
  Bytes partial_;
  std::size_t num_received_ = 0;
};

}  // namespace shunt::net
