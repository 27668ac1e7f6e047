// Notices when a peer's process dies or stops.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "shunt/ids.hpp"
#include "transport/ping_timer.hpp"
#include "transport/wait_ready.hpp"

namespace shunt {

class LocalTransport;

/// A thread that sleeps on one socket per peer. The end of the stream means that the peer's process has ended. A ping
/// is answered at once, also while the process computes; only a stopped process does not answer. An idle world sends no
/// pings, so the thread uses no CPU.
class Heartbeat {
 public:
  /// sockets[i] leads to the i-th of the transport's ranks; none for the own rank.
  Heartbeat(LocalTransport& transport, std::vector<Descriptor> sockets, std::chrono::milliseconds limit);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// As in Transport; the peer is one of the transport's ranks, by its place among them.
  void suspect(std::size_t peer);
  [[nodiscard]] bool is_gone(std::size_t peer) const { return peers_[peer].is_gone; }

 private:
  struct Peer {
    RankId rank;
    Descriptor socket;
    PingTimer ping_timer;
    std::atomic<bool> is_gone{false};
  };

  void run();
  /// False once the peer is gone.
  bool receive_from(Peer& peer);

  LocalTransport& transport_;
  std::chrono::milliseconds limit_;
  std::vector<Peer> peers_;
  Wake stop_;
  std::thread thread_;
};

}  // namespace shunt
