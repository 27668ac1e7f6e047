// From a bootstrap to a transport: ranks learn where the others are, and connect.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "shunt/bootstrap.hpp"
#include "shunt/topology.hpp"
#include "transport/transport.hpp"

namespace shunt {

class Rebuilder;

struct Joined {
  std::shared_ptr<Transport> transport;
  Topology topology;
  std::unique_ptr<Rebuilder> rebuilder;  ///< none where all ranks are threads of this process
};

/// The nodes that SHUNT_TOPOLOGY declares; without it, SHUNT_VIRTUAL_NODES runs of ranks. Throws
/// Error(invalid_argument).
Topology declared_nodes(const Environment& environment, std::int32_t num_ranks);

/// With its limits checked. Throws Error(invalid_argument).
Environment checked(Environment environment);

/// Collective, in three all-gathers: who the ranks are, where they can be reached, and whether all have reached all.
/// Ranks of one process share memory, those of one machine map each other's, all others are joined by a network.
/// `topology` says which ranks form a node; none: what the environment declares, or else a node per machine. What fails
/// on one rank is thrown on all: Error(mismatch) for other builds, nodes or networks, Error(invalid_argument) for nodes
/// that span machines, Error(deadline), Error(peer_lost), Error(system).
Joined join(Bootstrap& bootstrap, const Environment& environment, const std::optional<Topology>& topology);

/// What a rank keeps for the day when another one is lost.
class Rebuilder {
 public:
  struct Rebuilt {
    Joined joined;
    std::vector<RankId> survivors;  ///< what the new ranks were, ascending
  };

  virtual ~Rebuilder() = default;

  /// Collective over the ranks of `old` that are left after its fault, once. They join within SHUNT_JOIN_MS, in memory
  /// and with connections that no other rank of `old` knows. Throws as bootstrap::join_survivors and join do.
  virtual Rebuilt rebuild(Transport& old, const Topology& topology) = 0;
};

}  // namespace shunt
