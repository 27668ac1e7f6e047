// Ranks as threads whose nodes are islands: memory is shared inside a node only, and slices travel between them. The
// two-level path on one machine, under every sanitizer, without a network.
#pragma once

#include <memory>
#include <vector>

#include "shunt/topology.hpp"
#include "transport/transport.hpp"

namespace shunt::inproc {

/// As join(), but a peer is near only if the topology puts it on the same node.
std::vector<std::shared_ptr<Transport>> join_islands(const Topology& topology);

}  // namespace shunt::inproc
