// A TCP connection between two ranks. None of this waits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "transport/far/carrier.hpp"
#include "transport/net/sockets.hpp"

namespace shunt::tcp {

using net::IoStatus;

/// The first bytes in either direction. The session authenticates the sender: ranks agree on it where they prove that
/// they know the token.
struct Greeting {
  std::uint64_t session = 0;
  std::int32_t from = -1;
  std::int32_t channel = -1;

  bool operator==(const Greeting&) const = default;
};

/// Begins with a greeting in either direction; then carries one packet at a time in either direction.
class Connection {
 public:
  explicit Connection(Descriptor socket) : socket_(std::move(socket)) {}

  [[nodiscard]] int fd() const { return socket_.get(); }
  [[nodiscard]] const Descriptor& socket() const { return socket_; }

  /// False where the other end has gone. A greeting always fits into an empty connection.
  [[nodiscard]] bool send_greeting(const Greeting& greeting) const;
  IoStatus receive_greeting() {
    return net::receive(fd(), std::as_writable_bytes(std::span(&greeting_, 1)), num_greeting_received_);
  }
  /// The other end's, once receive_greeting() is done. All packets must carry its session and rank.
  [[nodiscard]] const Greeting& greeting() const { return greeting_; }

  /// After a result `lost`.
  [[nodiscard]] const std::string& why_lost() const { return why_lost_; }

  [[nodiscard]] bool is_sending() const { return packet_ != nullptr; }
  void begin(std::unique_ptr<far::Packet> packet);
  /// `done`: the system has all of it.
  IoStatus push();
  std::unique_ptr<far::Packet> finish() { return std::move(packet_); }

  /// `done`: one packet has arrived, and was received or dropped. `ended`: the peer has hung up after a whole one.
  IoStatus pull(far::Receiver& receiver);

 private:
  struct WireHeader {
    far::Header packet;
    std::uint64_t bytes = 0;
  };

  /// `num_received`: how many of the bytes have arrived so far.
  IoStatus fill(std::span<std::byte> bytes, std::size_t& num_received);
  IoStatus skip(std::size_t bytes, std::size_t& num_received);
  IoStatus lose(std::string why);

  Descriptor socket_;
  Greeting greeting_;
  std::size_t num_greeting_received_ = 0;
  std::string why_lost_;

  std::unique_ptr<far::Packet> packet_;
  WireHeader sent_header_;
  std::size_t num_sent_ = 0;  // of header and bytes together

  WireHeader header_;
  std::size_t num_header_received_ = 0;
  std::size_t num_body_received_ = 0;
  std::shared_ptr<std::byte[]> body_;  // none: it is dropped
};

}  // namespace shunt::tcp
