// Ranks that join as threads of the test, and others that only pretend to be ranks.
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

namespace shunt::test {

/// A port of this machine that nobody else gets while this exists; a listener that reuses addresses can have it.
class FreePort {
 public:
  explicit FreePort(const std::string& address = "127.0.0.1");

  /// False where this machine does not have the address.
  [[nodiscard]] bool valid() const { return number_ != 0; }
  [[nodiscard]] std::uint16_t number() const { return number_; }

 private:
  Descriptor reserved_;
  std::uint16_t number_ = 0;
};

/// What a rank knows once it has joined the others and all have exchanged their texts.
struct Gathered {
  std::vector<RankId> members;
  std::vector<std::string> texts;
};

struct JoinOutcome {
  std::optional<Gathered> gathered;
  std::optional<Error> error;
};

/// Joins, by whatever means, and gathers the texts in two rounds more.
JoinOutcome join_and_gather(const std::function<std::unique_ptr<bootstrap::Rendezvous>()>& join,
                            const std::string& text, std::chrono::milliseconds limit);

/// Joins in a thread of its own.
class RendezvousRank {
 public:
  explicit RendezvousRank(const bootstrap::RendezvousOptions& options, const std::string& text = "");

  JoinOutcome wait() { return outcome_.get(); }
  /// Fails the test unless the rank has joined the others.
  Gathered expect_joined();
  /// Fails the test unless the rank has thrown such an error.
  void expect_error(ErrorCode code, const std::string& words);

 private:
  std::future<JoinOutcome> outcome_;
};

/// One job at a port of its own. Every test leaves nothing behind.
class RendezvousTest : public LeavesNoTrace {
 protected:
  [[nodiscard]] bootstrap::RendezvousOptions options(std::int32_t rank, std::int32_t size) const;
  [[nodiscard]] RendezvousRank start(std::int32_t rank, std::int32_t size) const {
    return RendezvousRank(options(rank, size));
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
  explicit Caller(const net::Endpoint& endpoint);

  void send(std::span<const std::byte> bytes);
  void send(const std::string& text) { send(net::bytes_of(text)); }
  /// So many bytes; fewer if rank 0 closes the connection before.
  net::Bytes receive(std::size_t num_bytes);
  [[nodiscard]] bool is_closed_by_rank_0() { return receive(1).empty(); }
  void reset();

  Descriptor& socket() { return socket_; }

 private:
  Descriptor socket_;
};

/// A participant that knows the token and the protocol, and does no more than the test says.
class PuppetParticipant {
 public:
  /// Both have proven themselves when this returns.
  explicit PuppetParticipant(const bootstrap::RendezvousOptions& options,
                             std::uint32_t version = bootstrap::kProtocolVersion);

  void send(bootstrap::FrameKind kind, const std::string& body = "") { frames_->send(kind, net::bytes_of(body)); }
  /// An empty contribution to this round; the first one is 1.
  void contribute(std::uint32_t round = 1);
  /// Empty once rank 0 has closed the connection.
  std::optional<bootstrap::Frame> receive();
  /// Frames until one of this kind.
  std::optional<bootstrap::Frame> receive_until(bootstrap::FrameKind kind);

 private:
  std::optional<bootstrap::FrameConnection> frames_;
};

}  // namespace shunt::test
