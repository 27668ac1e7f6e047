// Ranks that join as threads of the test, and connections that only pretend to be ranks.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <string>
#include <vector>

#include "shunt/error.hpp"
#include "support/traces.hpp"
#include "transport/bootstrap/connection.hpp"
#include "transport/bootstrap/rendezvous.hpp"
#include "transport/net/ports.hpp"

namespace shunt::test {

/// The result of joining, and of gathering texts in two rounds more.
struct JoinOutcome {
  std::vector<RankId> members;
  std::vector<std::string> texts;
  std::optional<Error> error;
};

/// A rank that joins in a thread of its own, by whatever means, and then gathers the texts.
class RendezvousRank {
 public:
  RendezvousRank(std::function<std::unique_ptr<bootstrap::Rendezvous>()> join, const std::string& text,
                 std::chrono::milliseconds limit);
  explicit RendezvousRank(const bootstrap::RendezvousOptions& options, const std::string& text = "");

  /// Fails the test unless the rank has joined the others.
  JoinOutcome expect_joined();
  /// Fails the test unless the rank has thrown such an error.
  void expect_error(ErrorCode code, const std::string& words);

 private:
  std::future<JoinOutcome> outcome_;
};

/// One job at an address of its own. Every test leaves nothing behind.
class RendezvousTest : public LeavesNoTrace {
 protected:
  [[nodiscard]] bootstrap::RendezvousOptions options(std::int32_t rank, std::int32_t size) const;
  [[nodiscard]] net::Endpoint endpoint() const { return options(1, 2).endpoint; }
  [[nodiscard]] RendezvousRank start(std::int32_t rank, std::int32_t size) const {
    return RendezvousRank(options(rank, size));
  }

  // Reserved; a listener that reuses addresses can have the port.
  Descriptor port_ = net::reserve_port("");
  std::string address_ = "127.0.0.1";
  std::string token_ = "open sesame";
  std::chrono::milliseconds limit_{60'000};
};

/// A connection on which a test sends any bytes to rank 0. Waits for rank 0 to listen and to answer, within limits that
/// only a hang reaches.
class RawConnection {
 public:
  explicit RawConnection(const net::Endpoint& endpoint);

  void send(std::span<const std::byte> bytes);
  void send(const std::string& text) { send(net::bytes_of(text)); }
  /// That many bytes; fewer if rank 0 closes the connection before.
  net::Bytes receive(std::size_t num_bytes);
  [[nodiscard]] bool is_closed_by_rank_0() { return receive(1).empty(); }
  void reset();

  Descriptor& socket() { return socket_; }

 private:
  Descriptor socket_;
};

/// A participant that knows the token and the protocol, and does only what the test calls.
class ScriptedParticipant {
 public:
  /// Returns after the handshake.
  explicit ScriptedParticipant(const bootstrap::RendezvousOptions& options,
                               std::uint32_t version = bootstrap::kProtocolVersion);

  void send(bootstrap::FrameKind kind, const std::string& body = "") {
    connection_->send_frame(kind, net::bytes_of(body));
  }
  /// An empty contribution to this round; the first one is 1.
  void contribute(std::uint32_t round = 1);
  /// Empty once rank 0 has closed the connection.
  std::optional<bootstrap::Frame> receive();
  /// Frames until one of this kind.
  std::optional<bootstrap::Frame> receive_until(bootstrap::FrameKind kind);

 private:
  std::optional<bootstrap::Connection> connection_;
};

}  // namespace shunt::test
