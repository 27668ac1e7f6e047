// A connection between a rank and the coordinator: bytes at first, authenticated frames after the handshake.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "transport/bootstrap/authentication.hpp"
#include "transport/net/sockets.hpp"

namespace shunt::bootstrap {

enum class FrameKind : std::uint32_t {
  contribution,  ///< participant: the round's number, then its bytes
  ping,          ///< coordinator
  pong,          ///< participant
  result,        ///< coordinator: a piece of all contributions
  result_end,    ///< coordinator: the result is complete
  failure,       ///< coordinator: joining has failed; code, then text
};

struct Frame {
  FrameKind kind;
  net::Bytes body;
};

/// Never waits: bytes that the network does not take yet are kept, and nothing is received until all of it has arrived.
class Connection {
 public:
  explicit Connection(Descriptor socket) : socket_(std::move(socket)) {}

  [[nodiscard]] const Descriptor& socket() const { return socket_; }
  /// True once nothing more can be received; all that arrived before was received.
  [[nodiscard]] bool is_lost() const { return is_lost_; }
  void hang_up() { is_lost_ = true; }

  /// The entry for wait_ready().
  [[nodiscard]] pollfd awaited() const;
  void send(std::span<const std::byte> bytes);
  void flush();
  /// True once the network has taken all, or the other side has hung up.
  [[nodiscard]] bool is_flushed() const { return unsent_.empty(); }

  /// That many bytes, once they have all arrived. Until then call it again with the same number. Reads not one byte
  /// more from the network.
  std::optional<net::Bytes> receive(std::size_t num_bytes);

  /// After the handshake only frames are sent. Each carries a MAC over its number in this direction, kind and body.
  /// Injected bytes and replayed frames are never returned; they end the connection. `own`: the role of this side.
  void begin_frames(const Handshake& handshake, Role own);
  [[nodiscard]] bool has_frames() const { return sent_.has_value(); }
  void send_frame(FrameKind kind, std::span<const std::byte> body = {});
  /// Empty while no whole frame has arrived, and always once the connection is lost.
  std::optional<Frame> receive_frame();

  /// Closes this direction of the connection.
  void end_sending();
  /// Discards what arrives, as closing a connection with unread bytes destroys what the other side has not read yet.
  void discard();

 private:
  net::IoStatus fill(std::span<std::byte> bytes, std::size_t& num_received);

  struct Header {
    FrameKind kind;
    std::uint32_t num_bytes;
  };
  struct Direction {
    Digest key;
    std::uint64_t num_frames = 0;

    /// The MAC of the next frame.
    Digest mac(Header header, std::span<const std::byte> body);
  };

  Descriptor socket_;
  bool is_lost_ = false;
  net::Bytes unsent_;
  net::Bytes partial_;
  std::size_t num_received_ = 0;
  std::optional<Direction> sent_, received_;  // after the handshake
  std::optional<Header> header_;              // of a frame whose body is still incomplete
};

}  // namespace shunt::bootstrap
