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

// What listens at rank 0's place may be something else, which says nothing.
constexpr std::chrono::seconds kHandshakeLimit{5};
constexpr std::chrono::milliseconds kFirstPause{2};
constexpr std::chrono::milliseconds kLongestPause{100};

/// Ends a visit, not the meeting: the guest comes again.
struct Setback : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Serves the stream until `attempt` has an answer. Throws Setback once the stream is lost; empty after the deadline.
template <class Attempt>
auto await(Stream& stream, Deadline deadline, Attempt attempt) -> decltype(attempt()) {
  for (;;) {
    stream.flush();
    if (auto answer = attempt()) return answer;
    if (stream.is_lost()) throw Setback("it closed the connection");
    pollfd entry = stream.awaited();
    if (!wait_ready(std::span(&entry, 1), deadline)) return {};
  }
}

Bytes await_bytes(Stream& stream, Deadline deadline, std::size_t num_bytes) {
  auto bytes = await(stream, deadline, [&] { return stream.receive(num_bytes); });
  if (!bytes) throw Setback("it did not answer");
  return std::move(*bytes);
}

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
    try {
      return visit();
    } catch (const Setback& setback) {
      expect_more_patience(setback.what());
    }
    std::this_thread::sleep_for(pause);
  }
}

void Guest::expect_more_patience(const std::string& setback) const {
  if (return_by_ && Clock::now() >= std::min(*return_by_, *hear_by_))
    fail(ErrorCode::peer_lost, "rank {}: rank 0 ended while the ranks were meeting", options_.rank);
  if (!return_by_ && Clock::now() >= find_by_)
    fail(ErrorCode::deadline, "rank {} waited {} ms in vain for rank 0 of {} at {} ({})", options_.rank,
         options_.limit.count(), options_.size, describe(options_.place), setback);
}

std::vector<Meeting::Guest> Guest::visit() {
  auto [socket, why_not] = connect_to(options_.place, return_by_.value_or(find_by_));
  if (!socket.valid()) throw Setback(why_not);
  FrameStream frames = shake_hands(Stream(std::move(socket)));
  if (!hear_by_) hear_by_ = Clock::now() + options_.limit + kPatienceWithHost;
  try {
    return attend(frames);
  } catch (const Setback&) {
    return_by_ = Clock::now() + kReturnLimit;
    throw;
  }
}

FrameStream Guest::shake_hands(Stream stream) const {
  // Rank 0 may be found at the last moment, and answers nevertheless.
  const Deadline deadline = std::min(Clock::now() + kHandshakeLimit, return_by_.value_or(find_by_) + kPatienceWithHost);
  const Claim own{.rank = options_.rank.value, .size = options_.size, .number = options_.number, .nonce = draw_nonce()};
  stream.send(encode(own));
  const auto host = decode_claim(await_bytes(stream, deadline, kClaimBytes));
  if (!host || host->rank != 0) throw Setback("something else listens there");
  const Handshake handshake(options_.token, own, *host);
  stream.send(handshake.proof_of(Role::guest));
  const auto verdict = static_cast<Verdict>(await_bytes(stream, deadline, 1).front());
  if (verdict == Verdict::refused)
    fail(ErrorCode::invalid_argument, "rank 0 at {} does not accept the token of rank {}", describe(options_.place),
         options_.rank);
  if (verdict != Verdict::welcome) throw Setback("something else listens there");
  if (!equal(await_bytes(stream, deadline, sizeof(Digest)), handshake.proof_of(Role::host)))
    fail(ErrorCode::invalid_argument, "rank {} does not accept the token of rank 0 at {}", options_.rank,
         describe(options_.place));
  return {std::move(stream), handshake, Role::guest};
}

std::vector<Meeting::Guest> Guest::attend(FrameStream& frames) {
  const std::size_t most_bytes =
      static_cast<std::size_t>(options_.size) * (sizeof(Nonce) + sizeof(std::uint32_t) + kMaxCardBytes);
  Bytes roster;
  std::optional<std::vector<Meeting::Guest>> guests;
  frames.send(FrameKind::card, card_);
  for (;;) {
    const auto frame = await(frames.stream(), *hear_by_, [&] { return frames.receive(); });
    if (!frame)
      fail(ErrorCode::deadline, "rank {} has met rank 0, which then said nothing for {} ms", options_.rank,
           options_.limit.count());
    if (frame->kind == FrameKind::failure) throw_failure(frame->body);
    if (frame->kind == FrameKind::done && guests) return std::move(*guests);
    if (frame->kind == FrameKind::ping) {
      frames.send(FrameKind::pong);
    } else if (frame->kind == FrameKind::roster && roster.size() + frame->body.size() <= most_bytes) {
      // All have come; rank 0 now gives the slowest of them as much time again.
      if (roster.empty()) hear_by_ = Clock::now() + options_.limit + kPatienceWithHost;
      append(roster, frame->body);
    } else if (guests = decode_roster(roster, options_.size); frame->kind == FrameKind::roster_end && guests) {
      frames.send(FrameKind::received);
    } else {
      fail(ErrorCode::mismatch, "rank {}: rank 0 did not introduce {} ranks", options_.rank, options_.size);
    }
  }
}

}  // namespace shunt::net
