// Ranks that meet as threads of the test, and others that only pretend to be ranks.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <string>
#include <vector>

#include "shunt/error.hpp"
#include "support/traces.hpp"
#include "transport/net/frames.hpp"
#include "transport/net/meeting.hpp"
#include "transport/net/tcp.hpp"

namespace shunt::test {

/// A port of this host that nobody else gets while this exists; a listener that reuses addresses can have it.
class FreePort {
 public:
  explicit FreePort(const std::string& address = "127.0.0.1");

  /// False where this host does not have the address.
  [[nodiscard]] bool valid() const { return number_ != 0; }
  [[nodiscard]] std::uint16_t number() const { return number_; }

 private:
  Descriptor reserved_;
  std::uint16_t number_ = 0;
};

struct MeetingOutcome {
  std::optional<net::Meeting> meeting;
  std::optional<Error> error;
};

/// Meets in a thread of its own.
class MeetingRank {
 public:
  explicit MeetingRank(const net::MeetingOptions& options, const std::string& card = "");

  MeetingOutcome wait() { return outcome_.get(); }
  /// Fails the test unless the rank has met the others.
  net::Meeting expect_meeting();
  /// Fails the test unless the rank has thrown such an error.
  void expect_error(ErrorCode code, const std::string& words);

 private:
  std::future<MeetingOutcome> outcome_;
};

/// One job that meets at a port of its own. Every test leaves nothing behind.
class MeetingTest : public LeavesNoTrace {
 protected:
  [[nodiscard]] net::MeetingOptions options(std::int32_t rank, std::int32_t size) const;
  [[nodiscard]] MeetingRank start(std::int32_t rank, std::int32_t size) const {
    return MeetingRank(options(rank, size));
  }

  FreePort port_;
  std::string address_ = "127.0.0.1";
  std::string token_ = "open sesame";
  std::uint32_t number_ = 0;
  std::chrono::milliseconds limit_{60'000};
};

/// A connection by which a test says to rank 0 what it likes. Waits for rank 0 to listen and to answer, within limits
/// that only a hang reaches.
class Caller {
 public:
  explicit Caller(const net::MeetingPlace& place);

  void send(std::span<const std::byte> bytes);
  void send(const std::string& text) { send(net::bytes_of(text)); }
  /// So many bytes; fewer if rank 0 closes the connection before.
  net::Bytes receive(std::size_t num_bytes);
  [[nodiscard]] bool is_closed_by_host() { return receive(1).empty(); }
  void reset();

  Descriptor& socket() { return socket_; }

 private:
  Descriptor socket_;
};

/// A guest that knows the token and the protocol, and does no more than the test says.
class PuppetGuest {
 public:
  /// Both have proven themselves when this returns.
  explicit PuppetGuest(const net::MeetingOptions& options, std::uint32_t version = net::kProtocolVersion);

  void send(net::FrameKind kind, const std::string& body = "") { frames_->send(kind, net::bytes_of(body)); }
  /// Empty once rank 0 has closed the connection.
  std::optional<net::Frame> receive();
  /// Frames until one of this kind.
  std::optional<net::Frame> receive_until(net::FrameKind kind);

 private:
  std::optional<net::FrameStream> frames_;
};

}  // namespace shunt::test
