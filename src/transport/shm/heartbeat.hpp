// Notices when a peer's process dies or stops.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "transport/local/local_transport.hpp"
#include "transport/ping_timer.hpp"
#include "transport/shm/local_socket.hpp"

namespace shunt::shm {

/// A thread that sleeps on one socket per peer. The end of the stream means that the peer's process is gone. A ping is
/// answered at once, also while the process computes; only a stopped process stays silent. An idle world sends no
/// pings, so the thread uses no CPU.
class Heartbeat final : public Liveness {
 public:
  /// sockets[rank] leads to that peer; none for the own rank.
  Heartbeat(LocalTransport& transport, std::vector<Descriptor> sockets, std::chrono::milliseconds limit);
  ~Heartbeat() override;

  void suspect(RankId peer) override;
  [[nodiscard]] bool is_gone(RankId peer) const override { return peers_[peer.index()].is_gone; }

 private:
  struct Peer {
    Descriptor socket;
    PingTimer ping_timer;
    std::atomic<bool> is_gone{false};
  };

  void run();
  /// False once the peer is gone.
  bool listen_to(RankId peer);

  LocalTransport& transport_;
  std::chrono::milliseconds limit_;
  std::mutex mutex_;  // guards peers_ except the sockets, which never change while the thread runs
  std::vector<Peer> peers_;
  Descriptor stop_;       // closing this end ends the thread
  Descriptor stop_seen_;  // the thread's end
  std::thread thread_;
};

}  // namespace shunt::shm
