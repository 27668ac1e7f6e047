#include "transport/shm/sentinel.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <tuple>

#include "core/fail.hpp"

namespace shunt::shm {
namespace {

constexpr char kPing = '?';
constexpr char kAlive = '!';

// However long this process itself was stopped between two calls of suspect(), it counts as at most this much silence,
// and never as the whole limit: after a stop of all ranks the answers need a moment too.
std::chrono::steady_clock::duration most_silence_per_call(std::chrono::milliseconds limit) {
  return std::min(std::chrono::milliseconds(1000), limit / 2);
}

void send_byte(const Descriptor& socket, char byte) {
  // A full buffer or a vanished peer shows in other ways.
  (void)!send(socket.get(), &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

Sentinel::Sentinel(LocalTransport& transport, std::vector<Descriptor> sockets, std::chrono::milliseconds limit)
    : transport_(transport), limit_(limit), peers_(sockets.size()) {
  for (std::size_t rank = 0; rank < sockets.size(); ++rank) peers_[rank].socket = std::move(sockets[rank]);
  std::tie(stop_, stop_seen_) = socket_pair();
  thread_ = std::thread([this] { run(); });
}

Sentinel::~Sentinel() {
  stop_ = Descriptor();
  thread_.join();
}

void Sentinel::run() {
  std::vector<pollfd> entries;
  for (const Peer& peer : peers_) entries.push_back({peer.socket.get(), POLLIN, 0});  // −1 is skipped by poll
  entries.push_back({stop_seen_.get(), POLLIN, 0});
  for (;;) {
    if (poll(entries.data(), entries.size(), -1) < 0) continue;
    if (entries.back().revents != 0) return;
    for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
      if (entries[rank].revents != 0 && !listen_to(RankId(rank))) entries[rank].fd = -1;
    }
  }
}

bool Sentinel::listen_to(RankId peer) {
  Peer& state = peers_[peer.index()];
  char byte = 0;
  const ssize_t bytes = recv(state.socket.get(), &byte, 1, MSG_DONTWAIT);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (bytes == 1 && byte == kPing) {
    send_byte(state.socket, kAlive);
    return true;
  }
  if (bytes == 1) {
    const std::lock_guard lock(mutex_);
    state.ping_outstanding = false;
    return true;
  }
  // A peer that leaves in good order says so before its socket closes.
  if (!transport_.has_left(peer))
    transport_.report(ErrorCode::peer_lost, peer, fmt::format("the process of rank {} ended", peer));
  return false;
}

void Sentinel::suspect(RankId peer) {
  const std::lock_guard lock(mutex_);
  Peer& state = peers_[peer.index()];
  const auto now = Clock::now();
  if (!state.ping_outstanding) {
    state.ping_outstanding = true;
    state.last_asked = now;
    state.silent = Clock::duration::zero();
    send_byte(state.socket, kPing);
    return;
  }
  state.silent += std::min(most_silence_per_call(limit_), now - state.last_asked);
  state.last_asked = now;
  if (state.silent >= limit_)
    transport_.report(ErrorCode::peer_lost, peer,
                      fmt::format("rank {} has not answered for {} ms (stopped?)", peer,
                                  std::chrono::duration_cast<std::chrono::milliseconds>(state.silent).count()));
}

}  // namespace shunt::shm
