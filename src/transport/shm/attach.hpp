// Processes of one machine map each other's memory.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "transport/local/local_transport.hpp"
#include "transport/net/sockets.hpp"

namespace shunt::shm {

/// A rank of this machine.
struct NearPeer {
  RankId rank;                      ///< of the world; in messages and faults too
  std::string address;              ///< where it listens
  std::uint64_t session_there = 0;  ///< from this rank to it
  std::uint64_t session_here = 0;   ///< from it to this rank
};

struct AttachOptions {
  RankId self;                  ///< of the world
  std::vector<NearPeer> ranks;  ///< all of this machine, ascending, this rank included
  std::chrono::milliseconds limit{60'000};
  std::chrono::milliseconds liveness{5'000};
};

/// Listens for near peers, at a random address.
net::Listener open_near_listener();

/// Collective over the ranks of one machine. Every pair shares one connection, on which they pass their segments, and
/// whose end means the end of the other process. Only processes of the same user that know the session are accepted,
/// and others delay no rank. Throws Error(deadline) that names the ranks that did not come, Error(peer_lost) for a rank
/// that ended meanwhile, Error(system).
std::shared_ptr<LocalTransport> attach(const AttachOptions& options, const net::Listener& listener);

}  // namespace shunt::shm
