// Processes of one machine map each other's memory.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "transport/local/local_transport.hpp"
#include "transport/net/sockets.hpp"

namespace shunt::shm {

/// By rank, of the ranks of this machine.
struct Attached {
  LocalTransport::Segments segments;
  std::vector<Descriptor> sockets;  ///< for LocalTransport::watch
};

/// Listens for near peers, at a random address.
net::Listener open_near_listener();

/// Collective over the ranks of one machine. Every pair shares one connection, on which they pass their segments, and
/// whose end means the end of the other process. Only processes of the same user that know the session are accepted,
/// and others delay no rank. Throws Error(deadline) that names the ranks that did not come, Error(peer_lost) for a rank
/// that ended meanwhile, Error(system).
/// `ranks`: all of this machine, ascending, `self` included.
Attached attach(RankId self, const std::vector<net::Contact>& ranks, std::chrono::milliseconds limit,
                const net::Listener& listener);

/// The first message between two processes, over a local socket; travels with the descriptor of the sender's segment.
struct SegmentHello {
  std::uint64_t session = 0;  ///< from this rank to that one
  std::int32_t rank = -1;     ///< of the world
  std::int32_t unused = 0;
};

/// `again`: too many descriptors of this user are in flight. `gone`: the other side has hung up.
enum class Sent { done, again, gone };
/// Never waits. Throws Error(system) when the machine refuses.
Sent send_hello(const Descriptor& socket, const SegmentHello& hello, int fd);

struct ReceivedHello {
  SegmentHello hello;
  Descriptor descriptor;
};
/// Call once the socket is readable. Empty when the other side has hung up, or sent something else.
std::optional<ReceivedHello> receive_hello(const Descriptor& socket);

}  // namespace shunt::shm
