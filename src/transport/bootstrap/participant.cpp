#include "transport/bootstrap/participant.hpp"

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <utility>

#include "core/fail.hpp"

namespace shunt::bootstrap {
namespace {

using Clock = std::chrono::steady_clock;

// What listens at the coordinator's endpoint may be something else, which says nothing.
constexpr std::chrono::seconds kHandshakeLimit{5};
constexpr std::chrono::milliseconds kFirstPause{2};
constexpr std::chrono::milliseconds kLongestPause{100};
// How often to ask whether the coordinator is gone.
constexpr std::chrono::milliseconds kRollCall{50};

/// Ends an attempt, not the exchange: the participant connects again.
struct Setback : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void throw_failure(const net::Bytes& body) {
  net::ByteReader reader(body);
  const auto code = reader.take<std::uint32_t>();
  const auto text = reader.take_rest();
  throw Error(
      code <= static_cast<std::uint32_t>(ErrorCode::internal) ? static_cast<ErrorCode>(code) : ErrorCode::internal,
      std::string(reinterpret_cast<const char*>(text.data()), text.size()));
}

}  // namespace

Participant::Participant(const RendezvousOptions& options)
    : options_(options), find_by_(Clock::now() + options.limit) {}

std::vector<Contribution> Participant::exchange(std::span<const std::byte> mine, std::chrono::milliseconds limit) {
  ++round_;
  limit_ = limit;
  if (hear_by_) hear_by_ = Clock::now() + limit + kPatienceWithCoordinator;
  return_by_.reset();
  for (auto pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    expect_coordinator();
    try {
      if (!frames_) connect();
      return attempt(mine);
    } catch (const Setback& setback) {
      if (std::exchange(frames_, std::nullopt)) return_by_ = Clock::now() + kReturnLimit;
      expect_more_patience(setback.what());
    }
    std::this_thread::sleep_for(pause);
  }
}

void Participant::expect_coordinator() const {
  if (options_.is_gone && options_.is_gone(options_.coordinator))
    fail(ErrorCode::peer_lost, "rank {}: rank {} ended while the ranks were joining", options_.rank,
         options_.coordinator);
}

/// Serves the connection until `attempt` has an answer. Throws Setback once it is lost; empty after the deadline.
template <class Attempt>
auto Participant::await(Connection& connection, Deadline deadline, Attempt attempt) const -> decltype(attempt()) {
  for (;;) {
    connection.flush();
    if (auto answer = attempt()) return answer;
    if (connection.is_lost()) throw Setback("it closed the connection");
    expect_coordinator();
    pollfd entry = connection.awaited();
    const Deadline next = options_.is_gone ? std::min(deadline, Clock::now() + kRollCall) : deadline;
    if (!wait_ready(std::span(&entry, 1), next) && next == deadline) return {};
  }
}

net::Bytes Participant::await_bytes(Connection& connection, Deadline deadline, std::size_t num_bytes) const {
  auto bytes = await(connection, deadline, [&] { return connection.receive(num_bytes); });
  if (!bytes) throw Setback("it did not answer");
  return std::move(*bytes);
}

void Participant::expect_more_patience(const std::string& setback) const {
  if (return_by_ && Clock::now() >= std::min(*return_by_, *hear_by_))
    fail(ErrorCode::peer_lost, "rank {}: rank {} ended while the ranks were joining", options_.rank,
         options_.coordinator);
  if (!return_by_ && Clock::now() >= find_by_)
    fail(ErrorCode::deadline, "rank {} waited {} ms in vain for rank {} of {} at {} ({})", options_.rank,
         options_.limit.count(), options_.coordinator, options_.size, net::describe(options_.endpoint), setback);
}

void Participant::connect() {
  net::Endpoint endpoint = options_.endpoint;
  if (options_.num_ports > 1)
    endpoint.port = static_cast<std::uint16_t>(endpoint.port + num_attempts_++ % options_.num_ports);
  net::Connected connected = net::connect_to(endpoint, return_by_.value_or(find_by_));
  if (connected.is_unknown)
    fail(ErrorCode::invalid_argument, "rank {} can't find rank {} of {} at {}: {}", options_.rank, options_.coordinator,
         options_.size, net::describe(endpoint), connected.why_not);
  if (!connected.socket.valid()) throw Setback(connected.why_not);
  // Somebody listens there: rank 0 lives, and answers once it gathers again.
  if (return_by_) return_by_ = Clock::now() + kReturnLimit;
  address_ = net::own_address(connected.socket);
  frames_.emplace(shake_hands(Connection(std::move(connected.socket))));
  if (!hear_by_) hear_by_ = Clock::now() + limit_ + kPatienceWithCoordinator;
}

FrameConnection Participant::shake_hands(Connection connection) const {
  // The coordinator may be found at the last moment, and answers nevertheless.
  const Deadline deadline =
      std::min(Clock::now() + kHandshakeLimit, return_by_.value_or(find_by_) + kPatienceWithCoordinator);
  const std::string other_program =
      "something that is no rank of shunt listens there; SHUNT_MASTER_PORT can name another port";
  const Claim own{.rank = options_.rank.value, .size = options_.size, .number = options_.number, .nonce = draw_nonce()};
  connection.send(encode(own));
  const auto coordinator = decode_claim(await_bytes(connection, deadline, kClaimBytes));
  if (!coordinator || coordinator->rank != options_.coordinator.value) throw Setback(other_program);
  const Handshake handshake(options_.token, own, *coordinator);
  connection.send(handshake.proof_of(Role::participant));
  const auto verdict = static_cast<Verdict>(await_bytes(connection, deadline, 1).front());
  const std::string place = net::describe(options_.endpoint);
  if (verdict == Verdict::refused && options_.num_ports > 1) throw Setback("another job's rank 0 listens there");
  if (verdict == Verdict::refused)
    fail(ErrorCode::invalid_argument, "rank {} at {} does not accept the token of rank {}", options_.coordinator, place,
         options_.rank);
  if (verdict != Verdict::accepted) throw Setback(other_program);
  if (!equal(await_bytes(connection, deadline, sizeof(Digest)), handshake.proof_of(Role::coordinator)))
    fail(ErrorCode::invalid_argument, "rank {} does not accept the token of rank {} at {}", options_.rank,
         options_.coordinator, place);
  return {std::move(connection), handshake, Role::participant};
}

std::vector<Contribution> Participant::attempt(std::span<const std::byte> mine) {
  const std::size_t most_bytes =
      static_cast<std::size_t>(options_.size) * (2 * sizeof(std::uint32_t) + Bootstrap::kMaxBytes);
  net::Bytes numbered;
  net::append(numbered, round_);
  net::append(numbered, mine);
  frames_->send(FrameKind::contribution, numbered);
  net::Bytes result;
  for (;;) {
    const auto frame = await(frames_->connection(), *hear_by_, [&] { return frames_->receive(); });
    if (!frame)
      fail(ErrorCode::deadline, "rank {} has found rank {}, which then said nothing for {} ms", options_.rank,
           options_.coordinator, limit_.count());
    if (frame->kind == FrameKind::failure) throw_failure(frame->body);
    if (frame->kind == FrameKind::ping) {
      frames_->send(FrameKind::pong);
    } else if (frame->kind == FrameKind::result && result.size() + frame->body.size() <= most_bytes) {
      // All have come; the coordinator now gives the slowest of them as much time again.
      if (result.empty()) hear_by_ = Clock::now() + hand_out_limit(limit_) + kPatienceWithCoordinator;
      net::append(result, frame->body);
    } else if (auto all = read_result(result); frame->kind == FrameKind::result_end && all) {
      return std::move(*all);
    } else {
      fail(ErrorCode::mismatch, "rank {}: rank {} did not hand out what {} ranks contributed", options_.rank,
           options_.coordinator, options_.size);
    }
  }
}

std::optional<std::vector<Contribution>> Participant::read_result(const net::Bytes& result) const {
  auto all = decode_contributions(result, options_.size);
  const bool are_enough = all && (options_.is_gone || all->size() == static_cast<std::size_t>(options_.size));
  if (!are_enough || std::ranges::find(*all, options_.rank, &Contribution::rank) == all->end()) return std::nullopt;
  return all;
}

}  // namespace shunt::bootstrap
