// A network between a participant and rank 0 that records, and tampers with one connection.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <thread>

#include "transport/net/bytes.hpp"
#include "transport/net/sockets.hpp"

namespace shunt::test {

enum class Tampering {
  none,
  cut,                     ///< both sides lose the connection
  cut_unnoticed,           ///< the participant does, rank 0 does not notice
  forgery_to_coordinator,  ///< rank 0 gets a forged contribution, and from then on nothing that the participant sends
  forgery_to_participant,  ///< the participant gets a forged failure
};

class TamperingProxy {
 public:
  /// Listens at `own` and connects to rank 0. It tampers with the first connection, once the participant has sent that
  /// many bytes on it.
  TamperingProxy(const net::Endpoint& own, net::Endpoint coordinator, Tampering tampering = Tampering::none,
                 std::size_t after_bytes = 0);
  ~TamperingProxy();

  /// What participants have sent, by connection.
  [[nodiscard]] std::vector<net::Bytes> recorded();
  /// The bytes of the first connection on which so many have arrived; waits for it.
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
  /// These return false once the line is dead.
  bool carry_to_coordinator(Line& line);
  static bool carry_to_participant(Line& line);
  bool tamper(Line& line) const;

  net::Endpoint coordinator_;
  Tampering tampering_;
  std::size_t after_bytes_;
  std::vector<Descriptor> listeners_;
  std::list<Line> lines_;
  std::mutex mutex_;  // guards recorded_
  std::vector<net::Bytes> recorded_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace shunt::test
