#include "transport/net/host.hpp"

#include <algorithm>
#include <utility>

#include "core/diagnostic.hpp"
#include "core/fail.hpp"
#include "transport/missing_ranks.hpp"
#include "transport/net/roster.hpp"
#include "transport/net/tcp.hpp"

namespace shunt::net {
namespace {

using Clock = std::chrono::steady_clock;

// A handshake takes two round trips; a guest that was too slow comes again.
constexpr std::chrono::seconds kStrangerLimit{5};
// Strangers can't take all descriptors away. Far more than shake hands at the same time.
constexpr std::ptrdiff_t kMaxStrangers = 256;
// Of one round, so that those who are here already have their turn.
constexpr int kMaxAccepted = 64;
// A guest answers a ping at once, whatever it waits for.
constexpr std::chrono::seconds kPongLimit{2};
// Of lines about refused guests; who guesses tokens may not fill a disk.
constexpr int kMaxLines = 8;
// How often to ask who of the missing is gone.
constexpr std::chrono::milliseconds kRollCall{50};
// How long guests may take to hear the host's last word.
constexpr std::chrono::seconds kFarewellLimit{1};
// Of one frame. Each guest's next piece is made when the last one is gone, so the host does not hold one roster per
// guest.
constexpr std::size_t kPieceBytes = 64 * 1024;

}  // namespace

Host::Host(const MeetingOptions& options, std::span<const std::byte> card, std::vector<Descriptor> listeners)
    : options_(options), card_(card), deadline_(Clock::now() + options.limit), listeners_(std::move(listeners)) {}

std::vector<Meeting::Guest> Host::meet() {
  try {
    gather();
    return introduce_all();
  } catch (const Error& error) {
    Bytes body;
    append(body, static_cast<std::uint32_t>(error.code()));
    append(body, bytes_of(error.what()));
    take_leave(FrameKind::failure, body);
    throw;
  }
}

void Host::gather() {
  for (;;) {
    const std::vector<std::int32_t> missing = missing_ranks();
    if (missing.empty() || (options_.is_gone && Clock::now() >= deadline_)) return expect_majority();
    if (Clock::now() >= deadline_)
      fail(ErrorCode::deadline, "rank {} waited {} ms in vain for these of {} ranks: {}{}", options_.rank,
           options_.limit.count(), options_.size, list_some(missing), describe_refusals());
    wait_for_visitors();
    drop_the_gone();
  }
}

void Host::wait_for_visitors() {
  std::vector<pollfd> entries;
  for (const Visitor& visitor : visitors_) entries.push_back(visitor.stream().awaited());
  for (const Descriptor& listener : listeners_) entries.push_back({listener.get(), POLLIN, 0});
  if (!wait_ready(entries, next_alarm())) return;
  auto entry = entries.begin();
  for (Visitor& visitor : visitors_)
    if (entry++->revents != 0) hear(visitor);
  for (const Descriptor& listener : listeners_)
    if (entry++->revents != 0) accept_all_from(listener);
}

Deadline Host::next_alarm() const {
  Deadline next = options_.is_gone ? std::min(deadline_, Clock::now() + kRollCall) : deadline_;
  for (const Visitor& visitor : visitors_) {
    if (!visitor.is_proven()) next = std::min(next, visitor.patience());
    if (visitor.doubted_until) next = std::min(next, *visitor.doubted_until);
  }
  for (const auto& [rank, until] : departed_) next = std::min(next, until);
  return next;
}

/// A rank of which two have come is missing until it is clear which of them it is.
std::vector<bool> Host::present_ranks() const {
  std::vector<bool> is_here(static_cast<std::size_t>(options_.size));
  is_here[options_.rank.index()] = true;
  for (const Visitor& visitor : visitors_)
    if (visitor.is_proven() && visitor.card && !visitor.doubted_until) is_here[visitor.rank().index()] = true;
  for (const Visitor& visitor : visitors_)
    if (visitor.is_proven() && visitor.doubted_until) is_here[visitor.rank().index()] = false;
  return is_here;
}

std::vector<std::int32_t> Host::missing_ranks() const {
  const std::vector<bool> is_here = present_ranks();
  std::vector<std::int32_t> missing;
  for (std::int32_t rank = 0; rank < options_.size; ++rank)
    if (!is_here[RankId(rank).index()] && !(options_.is_gone && options_.is_gone(RankId(rank))))
      missing.push_back(rank);
  return missing;
}

/// There can't be two majorities. Of two halves it is the one with rank 0.
void Host::expect_majority() const {
  const std::vector<bool> is_here = present_ranks();
  const auto num_here = std::ranges::count(is_here, true);
  if (2 * num_here + (is_here[0] ? 1 : 0) <= options_.size)
    fail(ErrorCode::minority,
         "only {} of {} ranks found each other; a world is rebuilt by more than half of them, or by a "
         "half with rank 0 in it",
         num_here, options_.size);
}

void Host::accept_all_from(const Descriptor& listener) {
  for (int i = 0; i < kMaxAccepted; ++i) {
    auto [socket, out_of_room] = accept_from(listener);
    if (out_of_room && !drop_oldest_stranger())
      fail(ErrorCode::system, "rank {} can't open another descriptor for its {} guests", options_.rank,
           visitors_.size());
    if (out_of_room) continue;
    if (!socket.valid()) return;
    const Claim own{
        .rank = options_.rank.value, .size = options_.size, .number = options_.number, .nonce = draw_nonce()};
    visitors_.emplace_back(std::move(socket), own, Clock::now() + kStrangerLimit);
    if (std::ranges::count_if(visitors_, [](const Visitor& visitor) { return !visitor.is_proven(); }) > kMaxStrangers)
      drop_oldest_stranger();
  }
}

bool Host::drop_oldest_stranger() {
  const auto oldest = std::ranges::find_if(visitors_, [](const Visitor& visitor) { return !visitor.is_proven(); });
  if (oldest == visitors_.end()) return false;
  visitors_.erase(oldest);
  return true;
}

void Host::drop_the_gone() {
  const auto now = Clock::now();
  std::erase_if(visitors_, [&](const Visitor& visitor) {
    const bool is_gone = visitor.stream().is_lost() || (!visitor.is_proven() && visitor.patience() <= now) ||
                         (visitor.doubted_until && *visitor.doubted_until <= now);
    if (is_gone && visitor.is_proven()) departed_.emplace(visitor.rank(), now + kReturnLimit);
    return is_gone;
  });
  for (const Visitor& visitor : visitors_)
    if (visitor.is_proven()) departed_.erase(visitor.rank());
  const auto has_given_up = [&](const auto& departed) { return departed.second <= now; };
  if (options_.is_gone)
    std::erase_if(departed_, has_given_up);
  else if (const auto found = std::ranges::find_if(departed_, has_given_up); found != departed_.end())
    fail(ErrorCode::peer_lost, "rank {} ended while the ranks were meeting", found->first);
}

void Host::hear(Visitor& visitor) {
  visitor.stream().flush();
  if (!visitor.is_proven()) {
    visitor.shake_hands(options_.token);
    if (visitor.is_refused()) report_refusal(visitor);
    if (visitor.is_proven()) admit(visitor);
  }
  if (!visitor.is_proven()) return;
  while (auto frame = visitor.frames().receive()) hear_frame(visitor, std::move(*frame));
}

std::string Host::describe_refusals() const {
  return num_refusals_ == 0 ? "" : fmt::format(" (and refused {} who did not know the job's token)", num_refusals_);
}

void Host::report_refusal(const Visitor& visitor) {
  if (++num_refusals_ > kMaxLines) return;
  print_diagnostic("shunt: rank {} refuses {}, which says it is rank {} but does not know the job's token{}\n",
                   options_.rank, peer_name(visitor.stream().socket()), visitor.claim().rank,
                   num_refusals_ == kMaxLines ? "; further ones are refused silently" : "");
}

/// The guest knows the token, so what it claims is worth an Error on all ranks.
void Host::admit(Visitor& guest) {
  const Claim& claim = guest.claim();
  if (claim.version != kProtocolVersion)
    fail(ErrorCode::mismatch, "rank {} speaks version {} of the meeting's protocol, rank {} version {}", claim.rank,
         claim.version, options_.rank, kProtocolVersion);
  if (claim.size != options_.size)
    fail(ErrorCode::mismatch, "rank {} believes in {} ranks, rank {} in {}", claim.rank, claim.size, options_.rank,
         options_.size);
  if (claim.number != options_.number)
    fail(ErrorCode::mismatch, "rank {} comes to meeting {} of the job, rank {} holds meeting {}", claim.rank,
         claim.number, options_.rank, options_.number);
  if (claim.rank < 0 || claim.rank >= options_.size || claim.rank == options_.rank.value)
    fail(ErrorCode::mismatch, "a guest says that it is rank {} of {}", claim.rank, options_.size);
  // Whoever said so before may have lost its connection without this side noticing; then it does not answer.
  for (Visitor& other : visitors_) {
    if (&other == &guest || !other.is_proven() || other.rank() != guest.rank()) continue;
    other.frames().send(FrameKind::ping);
    if (!other.doubted_until) other.doubted_until = Clock::now() + kPongLimit;
  }
}

void Host::hear_frame(Visitor& guest, Frame frame) {
  if (frame.kind == FrameKind::card && !guest.card)
    guest.card = std::move(frame.body);
  else if (frame.kind == FrameKind::pong && guest.doubted_until)
    fail(ErrorCode::mismatch, "a second process says that it is rank {}", guest.rank());
  else
    guest.stream().hang_up();
}

std::vector<Meeting::Guest> Host::introduce_all() {
  // Now, as a guest that has met may come to the next meeting at once: it finds nobody until this rank holds that.
  listeners_.clear();
  const std::vector<bool> is_here = present_ranks();
  std::erase_if(visitors_, [&](const Visitor& visitor) {
    return !visitor.is_proven() || !visitor.card || !is_here[visitor.rank().index()];
  });
  std::vector<Meeting::Guest> guests = {
      {options_.rank, draw_nonce(), options_.place.address, {card_.begin(), card_.end()}}};
  for (const Visitor& visitor : visitors_)
    guests.push_back({visitor.rank(), visitor.claim().nonce, peer_address(visitor.stream().socket()), *visitor.card});
  std::ranges::sort(guests, {}, &Meeting::Guest::rank);
  hand_out(encode_roster(guests));
  take_leave(FrameKind::done, {});
  return guests;
}

void Host::hand_out(const Bytes& roster) {
  std::vector<Delivery> deliveries;
  for (Visitor& visitor : visitors_) deliveries.push_back({visitor});
  // Its own time: the last guest may have come at the last moment.
  const Deadline deadline = Clock::now() + hand_out_limit(options_);
  for (;;) {
    std::vector<pollfd> entries;
    std::vector<std::int32_t> unconfirmed;
    for (Delivery& delivery : deliveries) {
      FrameStream& frames = delivery.guest.frames();
      while (frames.stream().is_flushed() && !delivery.has_sent_end) {
        const auto rest = std::span(roster).subspan(delivery.num_sent);
        const auto piece = rest.first(std::min(rest.size(), kPieceBytes));
        frames.send(piece.empty() ? FrameKind::roster_end : FrameKind::roster, piece);
        delivery.num_sent += piece.size();
        delivery.has_sent_end = piece.empty();
      }
      entries.push_back(frames.stream().awaited());
      if (!delivery.is_confirmed) unconfirmed.push_back(delivery.guest.rank().value);
    }
    if (unconfirmed.empty()) return;
    if (!wait_ready(entries, deadline))
      fail(ErrorCode::deadline,
           "rank {} waited {} ms in vain for these of {} ranks, which came but then fell silent: {}", options_.rank,
           options_.limit.count(), options_.size, list_some(unconfirmed));
    for (std::size_t i = 0; i < entries.size(); ++i)
      if (entries[i].revents != 0) expect_confirmation(deliveries[i]);
  }
}

void Host::expect_confirmation(Delivery& delivery) {
  FrameStream& frames = delivery.guest.frames();
  frames.stream().flush();
  while (const auto frame = frames.receive()) {
    if (frame->kind == FrameKind::received && delivery.has_sent_end && !delivery.is_confirmed)
      delivery.is_confirmed = true;
    else
      frames.stream().hang_up();
  }
  if (frames.stream().is_lost())
    fail(ErrorCode::peer_lost, "rank {} ended while the ranks were meeting", delivery.guest.rank());
}

/// Leaves no guest's bytes unread: closing would then reset the connection, and the word might be lost.
void Host::take_leave(FrameKind word, std::span<const std::byte> body) {
  std::erase_if(visitors_, [](const Visitor& visitor) { return !visitor.is_proven() || visitor.stream().is_lost(); });
  for (Visitor& guest : visitors_) guest.frames().send(word, body);
  const Deadline deadline = Clock::now() + kFarewellLimit;
  for (;;) {
    std::vector<pollfd> entries;
    for (Visitor& guest : visitors_) {
      if (guest.stream().is_flushed()) guest.stream().end_sending();
      entries.push_back(guest.stream().awaited());
    }
    if (entries.empty() || !wait_ready(entries, deadline)) return;
    auto entry = entries.begin();
    for (Visitor& guest : visitors_) {
      if (entry++->revents == 0) continue;
      guest.stream().flush();
      guest.stream().discard();
    }
    std::erase_if(visitors_, [](const Visitor& visitor) { return visitor.stream().is_lost(); });
  }
}

}  // namespace shunt::net
