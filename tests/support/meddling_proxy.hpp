// A network between a guest and rank 0 that listens, and does harm once.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <thread>

#include "transport/net/bytes.hpp"
#include "transport/net/tcp.hpp"
#include "transport/wait_ready.hpp"

namespace shunt::test {

enum class Mishap {
  none,
  cut,               ///< both sides lose the connection
  cut_unnoticed,     ///< the guest does, rank 0 does not notice
  forgery_to_host,   ///< rank 0 gets somebody else's card, and from then on nothing that the guest sends
  forgery_to_guest,  ///< the guest hears that the meeting has failed, which rank 0 has not said
};

class MeddlingProxy {
 public:
  /// Listens at its own place and connects to rank 0's. The mishap happens to the first connection, once the guest has
  /// sent so many bytes on it.
  MeddlingProxy(const net::MeetingPlace& own, net::MeetingPlace host, Mishap mishap = Mishap::none,
                std::size_t after_bytes = 0);
  ~MeddlingProxy();

  /// What guests have sent on their connections, in the order of these.
  [[nodiscard]] std::vector<net::Bytes> recorded();
  /// The bytes of the first connection on which so many have come; waits for it.
  [[nodiscard]] net::Bytes await_recording(std::size_t num_bytes);

 private:
  struct Line {
    Descriptor guest;
    Descriptor host;
    std::size_t index;
    std::size_t num_bytes = 0;
    bool is_hijacked = false;
  };

  void run();
  void connect_through(Descriptor guest);
  /// Both return false once the line is dead.
  bool carry_to_host(Line& line);
  bool carry_to_guest(Line& line);
  bool befall(Line& line);

  net::MeetingPlace host_;
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
