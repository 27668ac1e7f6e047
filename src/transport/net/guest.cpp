#include "transport/net/guest.hpp"

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <utility>

#include "core/fail.hpp"
#include "transport/missing_ranks.hpp"
#include "transport/net/roster.hpp"
#include "transport/net/tcp.hpp"

namespace shunt::net {
namespace {

using Clock = std::chrono::steady_clock;

// What listens at the host's place may be something else, which says nothing.
constexpr std::chrono::seconds kHandshakeLimit{5};
constexpr std::chrono::milliseconds kFirstPause{2};
constexpr std::chrono::milliseconds kLongestPause{100};
// How often to ask whether the host is gone.
constexpr std::chrono::milliseconds kRollCall{50};

/// Ends a visit, not the meeting: the guest comes again.
struct Setback : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void throw_failure(const Bytes& body) {
  ByteReader reader(body);
  const auto code = reader.take<std::uint32_t>();
  const auto text = std::span(body).subspan(std::min(body.size(), sizeof(code)));
  throw Error(
      code <= static_cast<std::uint32_t>(ErrorCode::internal) ? static_cast<ErrorCode>(code) : ErrorCode::internal,
      std::string(reinterpret_cast<const char*>(text.data()), text.size()));
}

}  // namespace

Guest::Guest(const MeetingOptions& options, std::span<const std::byte> card)
    : options_(options), card_(card), find_by_(Clock::now() + options.limit) {}

std::vector<Meeting::Guest> Guest::meet() {
  for (auto pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    expect_host();
    try {
      return visit();
    } catch (const Setback& setback) {
      expect_more_patience(setback.what());
    }
    std::this_thread::sleep_for(pause);
  }
}

void Guest::expect_host() const {
  if (options_.is_gone && options_.is_gone(options_.host))
    fail(ErrorCode::peer_lost, "rank {}: rank {} ended while the ranks were meeting", options_.rank, options_.host);
}

/// Serves the stream until `attempt` has an answer. Throws Setback once the stream is lost; empty after the deadline.
template <class Attempt>
auto Guest::await(Stream& stream, Deadline deadline, Attempt attempt) const -> decltype(attempt()) {
  for (;;) {
    stream.flush();
    if (auto answer = attempt()) return answer;
    if (stream.is_lost()) throw Setback("it closed the connection");
    expect_host();
    pollfd entry = stream.awaited();
    const Deadline next = options_.is_gone ? std::min(deadline, Clock::now() + kRollCall) : deadline;
    if (!wait_ready(std::span(&entry, 1), next) && next == deadline) return {};
  }
}

Bytes Guest::await_bytes(Stream& stream, Deadline deadline, std::size_t num_bytes) const {
  auto bytes = await(stream, deadline, [&] { return stream.receive(num_bytes); });
  if (!bytes) throw Setback("it did not answer");
  return std::move(*bytes);
}

void Guest::expect_more_patience(const std::string& setback) const {
  if (return_by_ && Clock::now() >= std::min(*return_by_, *hear_by_))
    fail(ErrorCode::peer_lost, "rank {}: rank {} ended while the ranks were meeting", options_.rank, options_.host);
  if (!return_by_ && Clock::now() >= find_by_)
    fail(ErrorCode::deadline, "rank {} waited {} ms in vain for rank {} of {} at {} ({})", options_.rank,
         options_.limit.count(), options_.host, options_.size, describe(options_.place), setback);
}

std::vector<Meeting::Guest> Guest::visit() {
  Connected connected = connect_to(options_.place, return_by_.value_or(find_by_));
  if (connected.is_unknown)
    fail(ErrorCode::invalid_argument, "rank {} can't find rank {} of {} at {}: {}", options_.rank, options_.host,
         options_.size, describe(options_.place), connected.why_not);
  if (!connected.socket.valid()) throw Setback(connected.why_not);
  FrameStream frames = shake_hands(Stream(std::move(connected.socket)));
  if (!hear_by_) hear_by_ = Clock::now() + options_.limit + kPatienceWithHost;
  try {
    return attend(frames);
  } catch (const Setback&) {
    return_by_ = Clock::now() + kReturnLimit;
    throw;
  }
}

FrameStream Guest::shake_hands(Stream stream) const {
  // The host may be found at the last moment, and answers nevertheless.
  const Deadline deadline = std::min(Clock::now() + kHandshakeLimit, return_by_.value_or(find_by_) + kPatienceWithHost);
  const Claim own{.rank = options_.rank.value, .size = options_.size, .number = options_.number, .nonce = draw_nonce()};
  stream.send(encode(own));
  const auto host = decode_claim(await_bytes(stream, deadline, kClaimBytes));
  if (!host || host->rank != options_.host.value) throw Setback("something else listens there");
  const Handshake handshake(options_.token, own, *host);
  stream.send(handshake.proof_of(Role::guest));
  const auto verdict = static_cast<Verdict>(await_bytes(stream, deadline, 1).front());
  if (verdict == Verdict::refused)
    fail(ErrorCode::invalid_argument, "rank {} at {} does not accept the token of rank {}", options_.host,
         describe(options_.place), options_.rank);
  if (verdict != Verdict::welcome) throw Setback("something else listens there");
  if (!equal(await_bytes(stream, deadline, sizeof(Digest)), handshake.proof_of(Role::host)))
    fail(ErrorCode::invalid_argument, "rank {} does not accept the token of rank {} at {}", options_.rank,
         options_.host, describe(options_.place));
  return {std::move(stream), handshake, Role::guest};
}

std::vector<Meeting::Guest> Guest::attend(FrameStream& frames) {
  const std::size_t most_bytes = static_cast<std::size_t>(options_.size) * kMaxRosterEntryBytes;
  Bytes roster;
  std::optional<std::vector<Meeting::Guest>> guests;
  frames.send(FrameKind::card, card_);
  for (;;) {
    const auto frame = await(frames.stream(), *hear_by_, [&] { return frames.receive(); });
    if (!frame)
      fail(ErrorCode::deadline, "rank {} has met rank {}, which then said nothing for {} ms", options_.rank,
           options_.host, options_.limit.count());
    if (frame->kind == FrameKind::failure) throw_failure(frame->body);
    if (frame->kind == FrameKind::done && guests) return std::move(*guests);
    if (frame->kind == FrameKind::ping) {
      frames.send(FrameKind::pong);
    } else if (frame->kind == FrameKind::roster && roster.size() + frame->body.size() <= most_bytes) {
      // All have come; the host now gives the slowest of them as much time again.
      if (roster.empty()) hear_by_ = Clock::now() + hand_out_limit(options_) + kPatienceWithHost;
      append(roster, frame->body);
    } else if (guests = read_roster(roster); frame->kind == FrameKind::roster_end && guests) {
      frames.send(FrameKind::received);
    } else {
      fail(ErrorCode::mismatch, "rank {}: rank {} did not introduce {} ranks", options_.rank, options_.host,
           options_.size);
    }
  }
}

std::optional<std::vector<Meeting::Guest>> Guest::read_roster(const Bytes& roster) const {
  auto guests = decode_roster(roster, options_.size);
  const bool are_enough = guests && (options_.is_gone || guests->size() == static_cast<std::size_t>(options_.size));
  if (!are_enough || std::ranges::find(*guests, options_.rank, &Meeting::Guest::rank) == guests->end())
    return std::nullopt;
  return guests;
}

}  // namespace shunt::net
