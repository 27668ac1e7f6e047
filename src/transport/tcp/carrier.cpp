// Packets on connections that stand; carrier_join.cpp is how they come to.
#include "transport/tcp/carrier.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "core/fail.hpp"
#include "transport/tcp/carrier_parts.hpp"

namespace shunt::tcp {
namespace {

constexpr std::size_t kEventsAtATime = 64;
// From one connection, so that a peer who never pauses can't keep this rank from others, from sending or from leaving.
constexpr int kPacketsAtATime = 16;
// Of a lost peer: as many messages as it may have sent and more.
constexpr int kMostLastWords = 1024;

}  // namespace

Carrier::~Carrier() { close({}); }

void Carrier::send(std::unique_ptr<far::Packet> packet) {
  Peer& peer = *peers_.at(packet->to);
  if (peer.is_lost) return;
  const bool is_slice = packet->header.kind == far::Kind::slice;
  (is_slice ? peer.slices : peer.messages).push_back(std::move(packet));
  if (!peer.is_reached()) return;
  if (!is_slice) return push(peer.channels.front());
  const std::size_t num_rails = peer.channels.size() - 1;
  for (std::size_t i = 0; i < num_rails && !peer.slices.empty() && !peer.is_lost; ++i)
    push(peer.channels[1 + peer.next_rail++ % num_rails]);
}

void Carrier::push(Channel& channel) {
  Peer& peer = *channel.peer;
  Connection& connection = *channel.connection;
  if (channel.awaits_room || channel.state == Channel::State::ended) return;
  auto& queue = channel.is_for_messages() ? peer.messages : peer.slices;
  while (!peer.is_lost) {
    if (!connection.is_sending()) {
      if (queue.empty()) return;
      connection.begin(std::move(queue.front()));
      queue.pop_front();
    }
    switch (connection.push()) {
      case Progress::done: receiver_->note_sent(*connection.finish()); break;
      case Progress::blocked: channel.awaits_room = true; return watch(connection.fd(), EPOLLIN | EPOLLOUT, false);
      case Progress::ended:
      case Progress::lost: return lose(peer, connection.why_lost());
    }
  }
}

void Carrier::pull(Channel& channel) {
  for (int i = 0; i < kPacketsAtATime && !channel.peer->is_lost; ++i) {
    const Progress progress = channel.connection->pull(*receiver_);
    if (progress == Progress::lost) lose(*channel.peer, channel.connection->why_lost());
    if (progress == Progress::ended) end(channel);
    if (progress != Progress::done) return;
  }
}

// What came before through the others is still to be received.
void Carrier::end(Channel& channel) {
  Peer& peer = *channel.peer;
  channel.state = Channel::State::ended;
  channels_.erase(channel.fd());
  unwatch(channel.fd());
  if (peer.has_hung_up()) lose(peer, "it hung up");
}

bool Carrier::handle_events(int timeout_ms) {
  std::array<epoll_event, kEventsAtATime> ready;
  const int num_ready = epoll_wait(events_.get(), ready.data(), ready.size(), timeout_ms);
  if (num_ready < 0 && errno != EINTR) fail_errno("can't wait for the network");
  for (int i = 0; i < num_ready; ++i) {
    const epoll_event& event = ready[static_cast<std::size_t>(i)];
    handle(event.data.fd, event.events);
  }
  // A wake counts too: whoever rang wants the caller to look again before it sleeps.
  return bury_lost() || num_ready > 0;
}

void Carrier::handle(int fd, std::uint32_t events) {
  if (fd == wake_->fd()) return wake_->forget();
  // What was closed meanwhile is in none of them.
  if (const auto channel = channels_.find(fd); channel != channels_.end()) {
    if (!channel->second->peer->is_lost) advance(*channel->second, events);
  } else if (const auto guest = std::ranges::find(guests_, fd, &Introduction::fd); guest != guests_.end()) {
    hear_guest(guest);
  } else {
    for (const net::Listener& listener : listeners_)
      if (listener.socket.get() == fd) return accept_at(listener.socket);
  }
}

void Carrier::advance(Channel& channel, std::uint32_t events) {
  switch (channel.state) {
    case Channel::State::awaited:
    case Channel::State::ended: return;
    case Channel::State::connecting: return greet(channel);
    case Channel::State::greeting: return hear_greeting(channel);
    case Channel::State::open: break;
  }
  if ((events & EPOLLOUT) != 0 && channel.awaits_room) {
    channel.awaits_room = false;
    push(channel);
    if (!channel.awaits_room && !channel.peer->is_lost) watch(channel.fd(), EPOLLIN, false);
  }
  // Also for errors: reading says which.
  if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) pull(channel);
}

// Its connections may be in use by whoever found out, so they end later.
void Carrier::lose(Peer& peer, std::string why) {
  if (std::exchange(peer.is_lost, true)) return;
  peer.why_lost = std::move(why);
  has_lost_ = true;
}

bool Carrier::bury_lost() {
  if (!std::exchange(has_lost_, false)) return false;
  for (const auto& [rank, peer] : peers_) {
    if (!peer->is_lost || std::exchange(peer->is_buried, true)) continue;
    hear_last_words(*peer);
    hang_up(*peer);
    receiver_->lose(rank, peer->why_lost);
  }
  return true;
}

// Why it left may be among them.
void Carrier::hear_last_words(Peer& peer) {
  Channel& channel = peer.channels.front();
  if (channel.state != Channel::State::open) return;
  for (int i = 0; i < kMostLastWords && channel.connection->pull(*receiver_) == Progress::done;) ++i;
}

// A child that this process has forked may hold the same sockets open.
void Carrier::hang_up(Peer& peer) {
  for (Channel& channel : peer.channels) {
    channels_.erase(channel.fd());
    if (channel.state != Channel::State::ended) unwatch(channel.fd());
    (void)shutdown(channel.fd(), SHUT_RDWR);
    channel.connection.reset();
    channel.introduction = {};
  }
  peer.messages.clear();
  peer.slices.clear();
}

void Carrier::watch(int fd, std::uint32_t events, bool is_new) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (epoll_ctl(events_.get(), is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) != 0)
    fail_errno("can't watch a connection");
}

void Carrier::unwatch(int fd) { (void)epoll_ctl(events_.get(), EPOLL_CTL_DEL, fd, nullptr); }

std::int64_t Carrier::num_leaving() {
  std::size_t count = 0;
  for (const auto& [rank, peer] : peers_) {
    if (!peer->is_reached()) continue;
    count += peer->messages.size() + peer->slices.size();
    for (const Channel& channel : peer->channels) count += channel.connection->is_sending() ? 1 : 0;
  }
  return static_cast<std::int64_t>(count);
}

void Carrier::forget(RankId rank) {
  Peer& peer = *peers_.at(rank);
  peer.is_lost = peer.is_buried = true;
  hang_up(peer);
}

void Carrier::close(std::chrono::milliseconds) {
  close_doors();
  for (const auto& [rank, peer] : peers_) forget(rank);
}

}  // namespace shunt::tcp
