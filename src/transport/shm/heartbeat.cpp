#include "transport/shm/heartbeat.hpp"

#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "core/fail.hpp"
#include "core/start_thread.hpp"
#include "transport/ping_timer.hpp"

namespace shunt::shm {
namespace {

constexpr char kPing = '?';
constexpr char kAlive = '!';

void send_byte(const Descriptor& socket, char byte) {
  // A full buffer or a vanished peer shows in other ways.
  (void)!send(socket.get(), &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

class Heartbeat final : public Liveness {
 public:
  Heartbeat(LocalTransport& transport, std::vector<Descriptor> sockets, std::chrono::milliseconds limit)
      : transport_(transport), limit_(limit), peers_(sockets.size()) {
    for (std::size_t rank = 0; rank < sockets.size(); ++rank) peers_[rank].socket = std::move(sockets[rank]);
    thread_ =
        start_thread(fmt::format("the thread of rank {} that watches others", transport_.rank()), [this] { run(); });
  }
  ~Heartbeat() override {
    stop_.ring();
    thread_.join();
  }

  void suspect(RankId peer) override {
    Peer& state = peers_[peer.index()];
    state.ping_timer.suspect(
        limit_, [&] { send_byte(state.socket, kPing); },
        [&](auto milliseconds) {
          state.is_gone = true;
          transport_.report(
              ErrorCode::peer_lost, transport_.name(peer),
              fmt::format("rank {} has not answered for {} ms (stopped?)", transport_.name(peer), milliseconds));
        });
  }
  [[nodiscard]] bool is_gone(RankId peer) const override { return peers_[peer.index()].is_gone; }

 private:
  struct Peer {
    Descriptor socket;
    PingTimer ping_timer;
    std::atomic<bool> is_gone{false};
  };

  void run() {
    std::vector<pollfd> entries;
    for (const Peer& peer : peers_) entries.push_back({peer.socket.get(), POLLIN, 0});  // −1 is skipped by poll
    entries.push_back({stop_.fd(), POLLIN, 0});
    for (;;) {
      if (poll(entries.data(), entries.size(), -1) < 0) continue;
      if (entries.back().revents != 0) return;
      for (std::size_t rank = 0; rank < peers_.size(); ++rank)
        if (entries[rank].revents != 0 && !receive_from(RankId(rank))) entries[rank].fd = -1;
    }
  }

  /// False once the peer is gone.
  bool receive_from(RankId peer) {
    Peer& state = peers_[peer.index()];
    char byte = 0;
    const ssize_t bytes = recv(state.socket.get(), &byte, 1, MSG_DONTWAIT);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (bytes == 1 && byte == kPing) {
      send_byte(state.socket, kAlive);
      return true;
    }
    if (bytes == 1) {
      state.ping_timer.end();
      return true;
    }
    state.is_gone = true;
    // A peer that leaves in good order sets `left` before its socket closes.
    if (!transport_.has_left(peer))
      transport_.report(ErrorCode::peer_lost, transport_.name(peer),
                        fmt::format("the process of rank {} ended", transport_.name(peer)));
    return false;
  }

  LocalTransport& transport_;
  std::chrono::milliseconds limit_;
  std::vector<Peer> peers_;
  Wake stop_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Liveness> start_heartbeat(LocalTransport& transport, std::vector<Descriptor> sockets,
                                          std::chrono::milliseconds limit) {
  return std::make_unique<Heartbeat>(transport, std::move(sockets), limit);
}

}  // namespace shunt::shm
