// Ranks that join as threads of the test, and connections that only pretend to be ranks.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <string>
#include <vector>

#include "shunt/error.hpp"
#include "support/require_error.hpp"
#include "support/traces.hpp"
#include "transport/bootstrap/connection.hpp"
#include "transport/bootstrap/rendezvous.hpp"
#include "transport/net/ports.hpp"

namespace shunt::test {

/// The result of joining, and of gathering texts in two rounds more.
struct JoinOutcome {
  std::vector<RankId> members;
  std::vector<std::string> texts;
};

/// A rank that joins in a thread of its own, by whatever means, and then gathers the texts.
class RendezvousRank {
 public:
  RendezvousRank(std::function<std::unique_ptr<bootstrap::Rendezvous>()> join, const std::string& text,
                 std::chrono::milliseconds limit);
  explicit RendezvousRank(const bootstrap::RendezvousOptions& options, const std::string& text = "");

  /// Fails the test unless the rank joins the others.
  JoinOutcome expect_joined() { return outcome_.get(); }
  /// Fails the test unless the rank throws such an error.
  void expect_error(ErrorCode code, const std::string& words) {
    require_error([this] { (void)outcome_.get(); }, code, words);
  }

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
