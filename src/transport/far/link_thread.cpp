// The functions of a link's own thread, the only one that uses the carrier once the link is made.
#include <algorithm>

#include "core/fail.hpp"
#include "transport/far/link.hpp"

namespace shunt::far {
namespace {

using Clock = std::chrono::steady_clock;

// Largest packet that is no slice; faults are the longest.
constexpr std::size_t kMostSmallBytes = 4096;
// How long the last messages may take to be sent and acknowledged.
constexpr std::chrono::milliseconds kCloseLimit{2000};
constexpr std::chrono::microseconds kPause{100};

}  // namespace

void Link::run() {
  try {
    while (!is_stopping_) {
      const bool has_sent = send_queued();
      if (!carrier_->progress() && !has_sent) carrier_->sleep();
    }
    send_rest();
  } catch (const std::exception& error) {
    world_.report(ErrorCode::system, self_, fmt::format("rank {}: {}", self_, error.what()));
  }
  for (const auto& peer : peers_)
    if (peer) peer->is_broken = true;
  carrier_->close();
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

void Link::on_sent(const Packet& packet) {
  if (packet.header.kind == Kind::alive) peers_[packet.to.index()]->is_answering = false;
}

bool Link::wants(const Header& header, std::size_t bytes) {
  if (header.from < 0 || header.from >= std::ssize(peers_)) return false;
  Peer* const peer = peers_[static_cast<std::size_t>(header.from)].get();
  if (!peer || header.session != peer->contact.session_here || peer->has_violated) return false;
  peer->has_sent = true;
  peer->ping_timer.end();
  if (header.kind != Kind::slice) {
    if (bytes > kMostSmallBytes) report_violation(*peer, fmt::format("{} bytes that are no slice", bytes));
    return bytes <= kMostSmallBytes;
  }
  const bool is_granted = bytes <= peer->most_slice_bytes && peer->num_expected-- > 0;
  if (!is_granted)
    report_violation(*peer,
                     fmt::format("slice #{} of {} bytes, for which it was granted no room", header.index, bytes));
  return is_granted;
}

void Link::receive(const Header& header, std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  Peer& peer = *peers_[static_cast<std::size_t>(header.from)];
  if (header.kind != Kind::slice) return receive_small(peer, header.kind, bytes);
  receive_slice(peer, {peer.contact.rank,
                       {header.engine, header.sequence, header.index, header.is_last != 0},
                       bytes,
                       std::move(owner)});
}

void Link::receive_small(Peer& peer, Kind kind, std::span<const std::byte> bytes) {
  switch (kind) {
    case Kind::message: return receive_message(peer, bytes);
    case Kind::read:
      if (peer.num_unread < kReadAtATime)
        return report_violation(peer, "word that it has read more messages than there were");
      peer.num_unread -= kReadAtATime;
      return world_.wake();
    case Kind::ping:
      peer.has_asked = peer.awaits_answer = true;
      if (is_connecting_ && peer.awaits_answer.exchange(false)) answer(peer);
      return;
    case Kind::left: return receive_left(peer, bytes);
    case Kind::fault: return receive_fault(peer, bytes);
    case Kind::alive: peer.has_answered = true; return;
    case Kind::left_ack: peer.has_acked_leave = true; return;
    case Kind::slice: break;  // never small
  }
  report_violation(peer, fmt::format("a message of an unknown kind, {}", static_cast<int>(kind)));
}

void Link::receive_left(Peer& peer, std::span<const std::byte> bytes) {
  std::uint64_t num_slices = 0;
  if (peer.has_left) return report_violation(peer, "a second `left`");
  if (!net::unpack(bytes, num_slices)) return report_violation(peer, fmt::format("a `left` of {} bytes", bytes.size()));
  peer.num_slices_until_left = num_slices;
  peer.has_left = true;
  ack_leave(peer);
  world_.wake();
}

/// Once all slices have arrived, which travel on other connections than `left`. After a fault they don't matter.
void Link::ack_leave(Peer& peer) {
  if (!peer.has_left || (!peer.has_all_slices() && !world_.fault())) return;
  if (!std::exchange(peer.is_leave_acked, true)) carrier_->send(make_packet(peer.contact.rank, Kind::left_ack));
}

void Link::receive_message(Peer& peer, std::span<const std::byte> bytes) {
  Message message;
  if (bytes.size() > message.data.size())
    return report_violation(peer, fmt::format("a message of {} bytes", bytes.size()));
  message.from = peer.contact.rank;
  message.bytes = bytes.size();
  std::copy(bytes.begin(), bytes.end(), message.data.begin());
  bool has_room = false;
  {
    const std::lock_guard lock(mutex_);
    has_room = peer.messages.size() < static_cast<std::size_t>(kMostUnread);
    if (has_room && peer.messages.empty()) readable_.push_back(peer.contact.rank);
    if (has_room) peer.messages.push_back(message);
  }
  if (!has_room) return report_violation(peer, fmt::format("more than {} messages that were not read", kMostUnread));
  world_.wake();
}

void Link::receive_fault(Peer& peer, std::span<const std::byte> bytes) {
  std::int32_t code = -1;
  std::int32_t culprit = -1;
  net::Bytes text;
  if (!net::unpack(bytes, code, culprit, text) || culprit < 0 || culprit >= std::ssize(peers_) || code < 0 ||
      code > static_cast<std::int32_t>(ErrorCode::internal))
    return report_violation(peer, fmt::format("a fault that makes no sense ({} bytes)", bytes.size()));
  world_.report(static_cast<ErrorCode>(code), RankId(culprit), net::text_of(text));
}

// One answer at a time serves all pings, so a peer that does not read can't make answers pile up.
void Link::answer(Peer& peer) {
  if (!std::exchange(peer.is_answering, true)) carrier_->send(make_packet(peer.contact.rank, Kind::alive));
}

void Link::report_violation(Peer& peer, const std::string& sent) {
  if (std::exchange(peer.has_violated, true)) return;
  world_.report(ErrorCode::mismatch, peer.contact.rank,
                fmt::format("rank {} sent rank {} {}", peer.contact.rank, self_, sent));
}

void Link::receive_slice(Peer& peer, InSlice slice) {
  {
    const std::lock_guard lock(mutex_);
    slices_.push_back(std::move(slice));
  }
  // After the slice can be polled, so that has_left() implies that all slices can be polled.
  ++peer.num_slices_from;
  ack_leave(peer);
  world_.wake();
}

void Link::on_lost(RankId rank, const std::string& why) {
  Peer& peer = *peers_[rank.index()];
  if (!peer.is_broken && !peer.has_left && !has_left_)
    world_.report(ErrorCode::peer_lost, rank,
                  fmt::format("rank {} lost its connection to rank {}: {}", self_, rank, why));
  // After the fault, so that threads which see the broken connection find the fault too.
  peer.is_broken = true;
}

// Lasts as long as packets move, so that a slow network loses none.
void Link::send_rest() {
  const auto limit = world_.fault() ? kCloseLimit : std::max(kCloseLimit, liveness_);
  auto deadline = Clock::now() + limit;
  while (send_queued()) {
  }
  for (const auto& peer : peers_)
    if (peer && peer->is_silent) carrier_->drop(peer->contact.rank);
  // Answers to a peer that keeps asking are no progress.
  for (auto num_unsent = carrier_->num_unsent(); num_unsent > 0 && Clock::now() < deadline;) {
    if (!carrier_->progress()) std::this_thread::sleep_for(kPause);
    const auto num_now = carrier_->num_unsent();
    if (num_now >= num_unsent) continue;
    num_unsent = num_now;
    deadline = Clock::now() + limit;
  }
  await_leave_acks();
}

// Closing a connection with unread bytes resets it, and discards what was sent. A peer would then miss this rank's
// fault, and name this rank as the culprit.
void Link::await_leave_acks() {
  const auto deadline = Clock::now() + kCloseLimit;
  const auto is_awaited = [this](const std::unique_ptr<Peer>& peer) {
    return peer && (peer->has_sent || !is_connected_) && !peer->has_acked_leave && !peer->has_left &&
           !peer->is_broken && !peer->is_silent;
  };
  while (std::ranges::any_of(peers_, is_awaited) && Clock::now() < deadline)
    if (!carrier_->progress()) std::this_thread::sleep_for(kPause);
}

}  // namespace shunt::far
