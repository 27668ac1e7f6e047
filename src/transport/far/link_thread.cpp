// What a link's own thread does: it alone uses the carrier once the link is made.
#include <algorithm>
#include <array>
#include <cstring>

#include "core/fail.hpp"
#include "transport/far/link.hpp"
#include "transport/far/link_parts.hpp"

namespace shunt::far {
namespace {

using Clock = std::chrono::steady_clock;

// Of what is no slice; faults are the longest.
constexpr std::size_t kMostSmallBytes = 4096;
// How long the last messages may take to leave, and connections to close.
constexpr std::chrono::milliseconds kFarewell{2000};
constexpr std::chrono::microseconds kPause{100};

}  // namespace

void Link::run() {
  try {
    while (!is_stopping_) {
      const bool has_sent = send_queued();
      if (!carrier_->progress() && !has_sent) carrier_->sleep();
    }
    say_farewell();
  } catch (const std::exception& error) {
    listener_.on_fault(ErrorCode::system, options_.rank, fmt::format("rank {}: {}", options_.rank, error.what()));
  }
  for (const auto& peer : peers_)
    if (peer) peer->is_broken = true;
  carrier_->close(kFarewell);
  const std::lock_guard lock(mutex_);
  slices_.clear();
}

bool Link::send_queued() {
  std::deque<std::unique_ptr<Packet>> queued;
  {
    const std::lock_guard lock(mutex_);
    queued.swap(outgoing_);
  }
  for (auto& packet : queued) carrier_->send(std::move(packet));
  return !queued.empty();
}

void Link::note_sent(const Packet& packet) {
  if (packet.header.kind == Kind::alive) peers_[packet.to.index()]->is_answering = false;
}

bool Link::wants(const Header& header, std::size_t bytes) {
  if (header.from < 0 || header.from >= options_.size) return false;
  Peer* const peer = peers_[static_cast<std::size_t>(header.from)].get();
  if (!peer || header.session != peer->session_here || peer->is_accused) return false;
  peer->is_known = true;
  {
    const std::lock_guard lock(peer->mutex);
    peer->ping_timer.end();
  }
  if (header.kind != Kind::slice) {
    if (bytes > kMostSmallBytes) accuse(*peer, fmt::format("{} bytes that are no slice", bytes));
    return bytes <= kMostSmallBytes;
  }
  const bool is_granted = bytes <= peer->most_slice_bytes && peer->num_expected-- > 0;
  if (!is_granted)
    accuse(*peer, fmt::format("slice #{} of {} bytes, for which it was granted no room", header.index, bytes));
  return is_granted;
}

void Link::receive(const Header& header, std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  Peer& peer = *peers_[static_cast<std::size_t>(header.from)];
  if (header.kind != Kind::slice) return receive_small(peer, header.kind, bytes);
  receive_slice(
      peer, {peer.rank, {header.engine, header.sequence, header.index, header.is_last != 0}, bytes, std::move(owner)});
}

void Link::receive_small(Peer& peer, Kind kind, std::span<const std::byte> bytes) {
  switch (kind) {
    case Kind::message: return receive_message(peer, bytes);
    case Kind::read:
      if (peer.num_unread < kReadAtATime) return accuse(peer, "word that it has read more messages than there were");
      peer.num_unread -= kReadAtATime;
      return listener_.on_arrival();
    case Kind::ping:
      peer.has_asked = peer.awaits_answer = true;
      if (is_greeting_ && peer.awaits_answer.exchange(false)) answer(peer);
      return;
    case Kind::left: {
      std::uint64_t num_slices = 0;
      if (peer.has_left) return accuse(peer, "a second farewell");
      if (bytes.size() != sizeof(num_slices)) return accuse(peer, fmt::format("a farewell of {} bytes", bytes.size()));
      std::memcpy(&num_slices, bytes.data(), sizeof(num_slices));
      peer.num_slices_until_left = num_slices;
      peer.has_left = true;
      part(peer);
      return listener_.on_arrival();
    }
    case Kind::fault: return receive_fault(peer, bytes);
    case Kind::alive: peer.has_answered = true; return;
    case Kind::parted: peer.has_parted = true; return;
    case Kind::slice: break;  // never small
  }
  accuse(peer, fmt::format("a message of an unknown kind, {}", static_cast<int>(kind)));
}

/// Slices take another way than the farewell.
void Link::part(Peer& peer) {
  if (!peer.has_left || (!is_poisoned_ && peer.num_slices_from < peer.num_slices_until_left)) return;
  if (!std::exchange(peer.is_let_go, true)) carrier_->send(make_packet(peer.rank, Kind::parted, {}));
}

void Link::receive_message(Peer& peer, std::span<const std::byte> bytes) {
  Message message;
  if (bytes.size() > message.data.size()) return accuse(peer, fmt::format("a message of {} bytes", bytes.size()));
  message.from = peer.rank;
  message.bytes = bytes.size();
  std::copy(bytes.begin(), bytes.end(), message.data.begin());
  bool has_room = false;
  {
    const std::lock_guard lock(mutex_);
    has_room = peer.messages.size() < static_cast<std::size_t>(kMostUnread);
    if (has_room && peer.messages.empty()) heard_.push_back(peer.rank);
    if (has_room) peer.messages.push_back(message);
  }
  if (!has_room) return accuse(peer, fmt::format("more than {} messages that were not read", kMostUnread));
  listener_.on_arrival();
}

void Link::receive_fault(Peer& peer, std::span<const std::byte> bytes) {
  std::array<std::int32_t, 2> words{-1, -1};
  if (bytes.size() >= sizeof(words)) std::memcpy(words.data(), bytes.data(), sizeof(words));
  const auto [code, culprit] = words;
  if (culprit < 0 || culprit >= options_.size || code < 0 || code > static_cast<std::int32_t>(ErrorCode::internal))
    return accuse(peer, fmt::format("a fault that makes no sense ({} bytes)", bytes.size()));
  const auto text = bytes.subspan(sizeof(words));
  is_poisoned_ = true;
  listener_.on_fault(static_cast<ErrorCode>(code), RankId(culprit),
                     std::string(reinterpret_cast<const char*>(text.data()), text.size()));
}

// One answer at a time serves all questions, however many a peer asks that does not listen.
void Link::answer(Peer& peer) {
  if (!std::exchange(peer.is_answering, true)) carrier_->send(make_packet(peer.rank, Kind::alive, {}));
}

void Link::accuse(Peer& peer, const std::string& sent) {
  if (std::exchange(peer.is_accused, true)) return;
  listener_.on_fault(ErrorCode::mismatch, peer.rank,
                     fmt::format("rank {} sent rank {} {}", peer.rank, options_.rank, sent));
}

void Link::receive_slice(Peer& peer, InSlice slice) {
  {
    const std::lock_guard lock(mutex_);
    slices_.push_back(std::move(slice));
  }
  // After the slice can be polled: whoever sees the peer gone finds all that it sent.
  ++peer.num_slices_from;
  part(peer);
  listener_.on_arrival();
}

void Link::lose(RankId rank, const std::string& why) {
  Peer& peer = *peers_[rank.index()];
  if (!peer.is_broken && !peer.has_left && !has_left_)
    listener_.on_fault(ErrorCode::peer_lost, rank,
                       fmt::format("rank {} lost its connection to rank {}: {}", options_.rank, rank, why));
  // After the fault: whoever sees it broken finds out why.
  peer.is_broken = true;
}

// Takes as long as something moves: a slow network is no reason to leave peers without what they wait for.
void Link::say_farewell() {
  const auto patience = is_poisoned_ ? kFarewell : std::max(kFarewell, options_.liveness);
  auto deadline = Clock::now() + patience;
  while (send_queued()) {
  }
  for (const auto& peer : peers_)
    if (peer && peer->is_silent) carrier_->forget(peer->rank);
  // Answers to a peer that keeps asking are no progress.
  for (auto num_left = carrier_->num_leaving(); num_left > 0 && Clock::now() < deadline;) {
    if (!carrier_->progress()) std::this_thread::sleep_for(kPause);
    const auto num_now = carrier_->num_leaving();
    if (num_now >= num_left) continue;
    num_left = num_now;
    deadline = Clock::now() + patience;
  }
  await_partings();
}

// A connection that is closed while bytes are unread takes with it what was sent: then a peer would not hear of a fault
// from whoever found it, and name this rank instead.
void Link::await_partings() {
  const auto deadline = Clock::now() + kFarewell;
  const auto is_awaited = [this](const std::unique_ptr<Peer>& peer) {
    return peer && (peer->is_known || !has_greeted_) && !peer->has_parted && !peer->has_left && !peer->is_broken &&
           !peer->is_silent;
  };
  while (std::ranges::any_of(peers_, is_awaited) && Clock::now() < deadline)
    if (!carrier_->progress()) std::this_thread::sleep_for(kPause);
}

}  // namespace shunt::far
