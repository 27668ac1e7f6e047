// Notices when a peer's process dies or stops.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "transport/local/local_transport.hpp"
#include "transport/wait_ready.hpp"

namespace shunt::shm {

/// Starts a thread that sleeps on one socket per peer. The end of the stream means that the peer's process has ended. A
/// ping is answered at once, also while the process computes; only a stopped process does not answer. An idle world
/// sends no pings, so the thread uses no CPU. sockets[rank] leads to that peer; none for the own rank.
std::unique_ptr<Liveness> start_heartbeat(LocalTransport& transport, std::vector<Descriptor> sockets,
                                          std::chrono::milliseconds limit);

}  // namespace shunt::shm
