// The side of a rendezvous that connects to the coordinator.
#include <algorithm>
#include <stdexcept>
#include <thread>
#include <utility>

#include "core/fail.hpp"
#include "transport/bootstrap/connection.hpp"
#include "transport/bootstrap/rendezvous.hpp"

namespace shunt::bootstrap {
namespace {

using Clock = std::chrono::steady_clock;

// Another program that listens at the coordinator's endpoint may never answer.
constexpr std::chrono::seconds kHandshakeLimit{5};
constexpr std::chrono::milliseconds kFirstPause{2};
constexpr std::chrono::milliseconds kLongestPause{100};
// How often to call is_gone() for the coordinator.
constexpr std::chrono::milliseconds kLivenessInterval{50};
// A rank that has found the coordinator waits a little longer than the coordinator does, so that it receives the names
// of the missing ranks.
constexpr std::chrono::milliseconds kCoordinatorGrace{1000};

/// Ends an attempt, not the exchange: the participant connects again.
struct ConnectionFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void throw_failure(const net::Bytes& body) {
  std::uint32_t code = 0;
  net::Bytes text;
  (void)net::unpack(body, code, text);
  const auto most = static_cast<std::uint32_t>(ErrorCode::internal);
  throw Error(static_cast<ErrorCode>(std::min(code, most)), net::text_of(text));
}

/// Connects again while the coordinator is not there, or when the connection is lost.
class Participant final : public Rendezvous {
 public:
  explicit Participant(const RendezvousOptions& options)
      : Rendezvous(options), connect_by_(Clock::now() + options.limit) {}

  Contributions exchange(std::span<const std::byte> mine) override {
    if (result_by_) result_by_ = Clock::now() + limit_ + kCoordinatorGrace;
    reconnect_by_.reset();
    for (auto pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
      if (is_coordinator_gone()) fail_lost();
      try {
        if (!connection_) connect();
        return gather_once(mine);
      } catch (const ConnectionFailure& failure) {
        if (std::exchange(connection_, std::nullopt)) reconnect_by_ = Clock::now() + kReconnectLimit;
        fail_if_too_late(failure.what());
      }
      std::this_thread::sleep_for(pause);
    }
  }

 private:
  [[noreturn]] void fail_lost() const {
    fail(ErrorCode::peer_lost, "rank {}: rank {} ended while the ranks were joining", options_.rank,
         options_.coordinator);
  }

  [[nodiscard]] bool is_coordinator_gone() const { return options_.is_gone && options_.is_gone(options_.coordinator); }

  void fail_if_too_late(const std::string& why) const {
    if (reconnect_by_ && Clock::now() >= std::min(*reconnect_by_, *result_by_)) fail_lost();
    if (!reconnect_by_ && Clock::now() >= connect_by_)
      fail(ErrorCode::deadline, "rank {} waited {} ms in vain for rank {} of {} at {} ({})", options_.rank,
           options_.limit.count(), options_.coordinator, options_.size, net::describe(options_.endpoint), why);
  }

  /// Serves the connection until `attempt` returns something. Throws ConnectionFailure once it is lost; empty after the
  /// deadline.
  template <class Attempt>
  auto await(Connection& connection, Deadline deadline, Attempt attempt) const -> decltype(attempt()) {
    for (;;) {
      // Before the attempt: the coordinator may leave the old world right after its last frame.
      const bool is_gone = is_coordinator_gone();
      connection.flush();
      if (auto answer = attempt()) return answer;
      if (connection.is_lost()) throw ConnectionFailure("it closed the connection");
      if (is_gone) fail_lost();
      pollfd entry = connection.awaited();
      const Deadline next = options_.is_gone ? std::min(deadline, Clock::now() + kLivenessInterval) : deadline;
      if (!wait_ready(std::span(&entry, 1), next) && next == deadline) return {};
    }
  }

  net::Bytes await_bytes(Connection& connection, Deadline deadline, std::size_t num_bytes) const {
    auto bytes = await(connection, deadline, [&] { return connection.receive(num_bytes); });
    if (!bytes) throw ConnectionFailure("it did not answer");
    return std::move(*bytes);
  }

  void connect() {
    net::Endpoint endpoint = options_.endpoint;
    if (options_.num_ports > 1)
      endpoint.port = static_cast<std::uint16_t>(endpoint.port + num_attempts_++ % options_.num_ports);
    net::Connected connected = net::connect_to(endpoint, reconnect_by_.value_or(connect_by_));
    if (connected.is_unknown)
      fail(ErrorCode::invalid_argument, "rank {} can't find rank {} of {} at {}: {}", options_.rank,
           options_.coordinator, options_.size, net::describe(endpoint), connected.why_not);
    if (!connected.socket.valid()) throw ConnectionFailure(connected.why_not);
    // A listener is there, so rank 0 lives, and answers once it gathers again.
    if (reconnect_by_) reconnect_by_ = Clock::now() + kReconnectLimit;
    address_ = net::own_address(connected.socket);
    connection_ = authenticate(Connection(std::move(connected.socket)));
    if (!result_by_) result_by_ = Clock::now() + limit_ + kCoordinatorGrace;
  }

  Connection authenticate(Connection connection) const {
    // The coordinator may be found at the last moment, and answers nevertheless.
    const Deadline deadline =
        std::min(Clock::now() + kHandshakeLimit, reconnect_by_.value_or(connect_by_) + kCoordinatorGrace);
    const std::string other_program =
        "something that is no rank of shunt listens there; SHUNT_MASTER_PORT can name another port";
    const Hello own{
        .rank = options_.rank.value, .size = options_.size, .number = options_.number, .nonce = draw_nonce()};
    connection.send(encode(own));
    const auto coordinator = decode_hello(await_bytes(connection, deadline, kHelloBytes));
    if (!coordinator || coordinator->rank != options_.coordinator.value) throw ConnectionFailure(other_program);
    const Handshake handshake(options_.token, own, *coordinator);
    connection.send(handshake.proof_of(Role::participant));
    const auto verdict = static_cast<Verdict>(await_bytes(connection, deadline, 1).front());
    const std::string place = net::describe(options_.endpoint);
    if (verdict == Verdict::refused && options_.num_ports > 1)
      throw ConnectionFailure("another job's rank 0 listens there");
    if (verdict == Verdict::refused)
      fail(ErrorCode::invalid_argument, "rank {} at {} does not accept the token of rank {}", options_.coordinator,
           place, options_.rank);
    if (verdict != Verdict::accepted) throw ConnectionFailure(other_program);
    if (!equal(await_bytes(connection, deadline, sizeof(Digest)), handshake.proof_of(Role::coordinator)))
      fail(ErrorCode::invalid_argument, "rank {} does not accept the token of rank {} at {}", options_.rank,
           options_.coordinator, place);
    connection.begin_frames(handshake, Role::participant);
    return connection;
  }

  Contributions gather_once(std::span<const std::byte> mine) {
    const std::size_t most_bytes =
        static_cast<std::size_t>(options_.size) * (2 * sizeof(std::uint32_t) + Bootstrap::kMaxBytes);
    connection_->send_frame(FrameKind::contribution, net::pack(round_, mine));
    net::Bytes result;
    for (;;) {
      const auto frame = await(*connection_, *result_by_, [&] { return connection_->receive_frame(); });
      if (!frame)
        fail(ErrorCode::deadline, "rank {} has found rank {}, which then said nothing for {} ms", options_.rank,
             options_.coordinator, limit_.count());
      if (frame->kind == FrameKind::failure) throw_failure(frame->body);
      if (frame->kind == FrameKind::ping) {
        connection_->send_frame(FrameKind::pong);
      } else if (frame->kind == FrameKind::result && result.size() + frame->body.size() <= most_bytes) {
        // The round is over; the coordinator now gives the slowest participant as much time again.
        if (result.empty()) result_by_ = Clock::now() + result_limit(limit_) + kCoordinatorGrace;
        net::append(result, frame->body);
      } else if (auto all = read_result(result); frame->kind == FrameKind::result_end && all) {
        return std::move(*all);
      } else {
        fail(ErrorCode::mismatch, "rank {}: rank {} did not hand out what {} ranks contributed", options_.rank,
             options_.coordinator, options_.size);
      }
    }
  }

  [[nodiscard]] std::optional<Contributions> read_result(const net::Bytes& result) const {
    auto all = decode_contributions(result, options_.size);
    const bool are_enough = all && (options_.is_gone || all->size() == static_cast<std::size_t>(options_.size));
    return are_enough && all->contains(options_.rank) ? std::move(all) : std::nullopt;
  }

  std::optional<Connection> connection_;  // authenticated
  std::uint16_t num_attempts_ = 0;
  Deadline connect_by_;
  std::optional<Deadline> result_by_;     // once connected
  std::optional<Deadline> reconnect_by_;  // once the connection was lost
};

}  // namespace

std::unique_ptr<Rendezvous> make_participant(const RendezvousOptions& options) {
  return std::make_unique<Participant>(options);
}

}  // namespace shunt::bootstrap
