// Processes of one machine map each other's memory.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "transport/local/local_transport.hpp"
#include "transport/wait_ready.hpp"

namespace shunt::shm {

/// A rank of this machine.
struct NearPeer {
  RankId rank;                      ///< of the world; in messages and faults too
  std::string listener;             ///< the name of its socket
  std::uint64_t session_there = 0;  ///< of what this rank sends to it
  std::uint64_t session_here = 0;   ///< of what it sends to this rank
};

struct AttachOptions {
  RankId self;                  ///< of the world
  std::vector<NearPeer> ranks;  ///< all of this machine, ascending, this rank included
  std::chrono::milliseconds limit{60'000};
  std::chrono::milliseconds liveness{5'000};
};

/// Where near peers connect, under a name that no other world has. Made before the name is told.
class AttachListener {
 public:
  AttachListener();
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const Descriptor& socket() const { return socket_; }

 private:
  std::string name_;
  Descriptor socket_;
};

/// Collective over the ranks of one machine. Every pair shares one connection, on which they pass their segments, and
/// which tells each of the other's end from then on. Only processes of the same user that know the session are let in,
/// and one that is silent or sends something else delays no rank. Throws Error(deadline) that names who did not come,
/// Error(peer_lost) for a rank that ended meanwhile, Error(system).
std::shared_ptr<LocalTransport> attach(const AttachOptions& options, const AttachListener& listener);

}  // namespace shunt::shm
