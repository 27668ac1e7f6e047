// A network between a participant and rank 0 that listens, and does harm once.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <thread>

#include "transport/net/bytes.hpp"
#include "transport/net/sockets.hpp"
#include "transport/wait_ready.hpp"

namespace shunt::test {

enum class Mishap {
  none,
  cut,                     ///< both sides lose the connection
  cut_unnoticed,           ///< the participant does, rank 0 does not notice
  forgery_to_coordinator,  ///< rank 0 gets somebody else's contribution, and from then on nothing that the participant
                           ///< sends
  forgery_to_participant,  ///< the participant hears that joining has failed, which rank 0 has not said
};

class MeddlingProxy {
 public:
  /// Listens at its own place and connects to rank 0's. The mishap happens to the first connection, once the
  /// participant has sent so many bytes on it.
  MeddlingProxy(const net::Endpoint& own, net::Endpoint coordinator, Mishap mishap = Mishap::none,
                std::size_t after_bytes = 0);
  ~MeddlingProxy();

  /// What participants have sent on their connections, in the order of these.
  [[nodiscard]] std::vector<net::Bytes> recorded();
  /// The bytes of the first connection on which so many have come; waits for it.
  [[nodiscard]] net::Bytes await_recording(std::size_t num_bytes);

 private:
  struct Line {
    Descriptor participant;
    Descriptor coordinator;
    std::size_t index;
    std::size_t num_bytes = 0;
    bool is_hijacked = false;
  };

  void run();
  void connect_through(Descriptor participant);
  /// Both return false once the line is dead.
  bool carry_to_coordinator(Line& line);
  bool carry_to_participant(Line& line);
  bool befall(Line& line);

  net::Endpoint coordinator_;
  Mishap mishap_;
  std::size_t after_bytes_;
  std::vector<Descriptor> listeners_;
  std::list<Line> lines_;
  std::mutex mutex_;  // guards recorded_
  std::vector<net::Bytes> recorded_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace shunt::test
