// Ranks as threads of one process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shunt/topology.hpp"
#include "transport/local/local_transport.hpp"

namespace shunt::inproc {

/// All ranks' ends of one new world, in rank order; each is then used by one thread.
std::vector<std::shared_ptr<Transport>> join(std::int32_t num_ranks);

/// As join(), but a peer is near only if the topology puts it on the same node: memory is shared inside these islands,
/// and slices travel between them. The two-level path on one machine, under every sanitizer, without a network.
std::vector<std::shared_ptr<Transport>> join_islands(const Topology& topology);

/// The memory of `num_ranks` threads of this process; the same `world` finds the same.
LocalTransport::Segments segments_of(const std::string& world, std::size_t num_ranks);

}  // namespace shunt::inproc
