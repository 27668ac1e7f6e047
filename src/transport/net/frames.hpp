// What two ranks say to each other once both have proven that they know the token.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/net/proof.hpp"
#include "transport/net/stream.hpp"

namespace shunt::net {

/// Of a card; longer ones are refused before anything is sent.
constexpr std::size_t kMaxCardBytes = std::size_t{1} << 20;

/// How long the host waits for a guest that has lost its connection, and such a guest for the host. One that lives
/// comes again at once; one whose process has died does not.
constexpr std::chrono::seconds kReturnLimit{3};

/// How long cards may take to be handed out once all have come.
inline std::chrono::milliseconds hand_out_limit(const MeetingOptions& options) {
  return std::max(options.limit, std::chrono::milliseconds(5000));
}

enum class FrameKind : std::uint32_t {
  card,        ///< guest: here I am
  ping,        ///< host: are you still there?
  pong,        ///< guest: yes
  roster,      ///< host: a piece of everybody's cards
  roster_end,  ///< host: that was all of it
  received,    ///< guest: I have it
  done,        ///< host: all have it
  failure,     ///< host: the meeting has failed
};
constexpr std::uint32_t kNumFrameKinds = 8;

struct Frame {
  FrameKind kind;
  Bytes body;
};

/// Each frame carries a MAC over its number in this direction, kind and body. Bytes that somebody else put into the
/// connection, or frames recorded and sent again, end it; they are never handed out.
class FrameStream {
 public:
  /// `own`: the role of this side.
  FrameStream(Stream stream, const Handshake& handshake, Role own);

  [[nodiscard]] Stream& stream() { return stream_; }
  [[nodiscard]] const Stream& stream() const { return stream_; }

  void send(FrameKind kind, std::span<const std::byte> body = {});
  /// Empty while no whole frame has come, and for ever once the stream is lost.
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

  Stream stream_;
  Direction sent_;
  Direction received_;
  std::optional<Header> header_;  // of the frame whose body has not come yet
};

}  // namespace shunt::net
