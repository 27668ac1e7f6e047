#include "transport/local/heartbeat.hpp"

#include <sys/socket.h>

#include "core/fail.hpp"
#include "core/start_thread.hpp"
#include "transport/local/local_transport.hpp"

namespace shunt {
namespace {

constexpr char kPing = '?';
constexpr char kAlive = '!';

void send_byte(const Descriptor& socket, char byte) {
  // A full buffer or a vanished peer shows in other ways.
  (void)!send(socket.get(), &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

Heartbeat::Heartbeat(LocalTransport& transport, std::vector<Descriptor> sockets, std::chrono::milliseconds limit)
    : transport_(transport), limit_(limit), peers_(sockets.size()) {
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    peers_[i].rank = transport_.members()[i];
    peers_[i].socket = std::move(sockets[i]);
  }
  thread_ =
      start_thread(fmt::format("the thread of rank {} that watches others", transport_.rank()), [this] { run(); });
}

Heartbeat::~Heartbeat() {
  stop_.ring();
  thread_.join();
}

void Heartbeat::suspect(std::size_t peer) {
  Peer& state = peers_[peer];
  state.ping_timer.suspect(
      limit_, [&] { send_byte(state.socket, kPing); },
      [&](auto milliseconds) {
        state.is_gone = true;
        transport_.report(ErrorCode::peer_lost, state.rank,
                          fmt::format("rank {} has not answered for {} ms (stopped?)", state.rank, milliseconds));
      });
}

void Heartbeat::run() {
  std::vector<pollfd> entries;
  for (const Peer& peer : peers_) entries.push_back({peer.socket.get(), POLLIN, 0});  // −1 is skipped by poll
  entries.push_back({stop_.fd(), POLLIN, 0});
  for (;;) {
    if (poll(entries.data(), entries.size(), -1) < 0) continue;
    if (entries.back().revents != 0) return;
    for (std::size_t i = 0; i < peers_.size(); ++i)
      if (entries[i].revents != 0 && !receive_from(peers_[i])) entries[i].fd = -1;
  }
}

bool Heartbeat::receive_from(Peer& peer) {
  char byte = 0;
  const ssize_t bytes = recv(peer.socket.get(), &byte, 1, MSG_DONTWAIT);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (bytes == 1) {
    if (byte == kPing)
      send_byte(peer.socket, kAlive);
    else
      peer.ping_timer.end();
    return true;
  }
  peer.is_gone = true;
  // A peer that leaves in good order sets `left` before its socket closes.
  if (!transport_.has_left(peer.rank))
    transport_.report(ErrorCode::peer_lost, peer.rank, fmt::format("the process of rank {} ended", peer.rank));
  return false;
}

}  // namespace shunt
