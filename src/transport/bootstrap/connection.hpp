// A connection between a rank and the coordinator: bytes first, authenticated frames once both know the token.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "transport/bootstrap/authentication.hpp"
#include "transport/net/sockets.hpp"

namespace shunt::bootstrap {

/// Never waits: what the network does not take yet is kept, what has not come yet is none.
class Connection {
 public:
  explicit Connection(Descriptor socket) : socket_(std::move(socket)) {}

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
  std::optional<net::Bytes> receive(std::size_t num_bytes);

  /// Says that nothing more will be sent.
  void end_sending();
  /// Throws away what comes, so that closing does not destroy what the other side has not yet read.
  void discard();

 private:
  Descriptor socket_;
  bool is_lost_ = false;
  net::Bytes unsent_;
  net::Bytes partial_;
  std::size_t num_received_ = 0;
};

enum class FrameKind : std::uint32_t {
  contribution,  ///< participant: the round's number, then its bytes
  ping,          ///< coordinator: are you still there?
  pong,          ///< participant: yes
  result,        ///< coordinator: a piece of all contributions
  result_end,    ///< coordinator: that was all of it
  failure,       ///< coordinator: joining has failed; code, then text
};
constexpr std::uint32_t kNumFrameKinds = 6;

struct Frame {
  FrameKind kind;
  net::Bytes body;
};

/// Each frame carries a MAC over its number in this direction, kind and body. Bytes that somebody else put into the
/// connection, or frames recorded and sent again, end it; they are never handed out.
class FrameConnection {
 public:
  /// `own`: the role of this side.
  FrameConnection(Connection connection, const Handshake& handshake, Role own);

  [[nodiscard]] Connection& connection() { return connection_; }
  [[nodiscard]] const Connection& connection() const { return connection_; }

  void send(FrameKind kind, std::span<const std::byte> body = {});
  /// Empty while no whole frame has come, and for ever once the connection is lost.
  std::optional<Frame> receive();

 private:
  struct Header {
    FrameKind kind;
    std::uint32_t num_bytes;
  };
  struct Direction {
    Digest key;
    std::uint64_t num_frames = 0;

    /// Of the next frame.
    Digest mac(Header header, std::span<const std::byte> body);
  };

  Connection connection_;
  Direction sent_;
  Direction received_;
  std::optional<Header> header_;  // of the frame whose body has not come yet
};

}  // namespace shunt::bootstrap
