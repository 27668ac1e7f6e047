// Processes of one machine map each other's memory.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "transport/local/local_transport.hpp"
#include "transport/net/sockets.hpp"

namespace shunt::shm {

struct AttachOptions {
  RankId self;                      ///< of the world
  std::vector<net::Contact> ranks;  ///< all of this machine, ascending, this rank included
  std::chrono::milliseconds limit{60'000};
};

/// By rank, as in AttachOptions.
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
Attached attach(const AttachOptions& options, const net::Listener& listener);

}  // namespace shunt::shm
