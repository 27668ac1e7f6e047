// From a bootstrap to a transport: ranks exchange their addresses and connect.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "shunt/bootstrap.hpp"
#include "shunt/environment.hpp"
#include "shunt/topology.hpp"
#include "transport/bootstrap/survivors.hpp"

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

/// The same, after its limits were checked. Throws Error(invalid_argument).
Environment checked(Environment environment);

/// Collective, in three all-gathers: the ranks' identities, their addresses, and whether all have reached all.
/// Ranks of one process share memory, those of one machine map each other's, all others are joined by a network.
/// `topology` has the nodes; none: those that the environment declares, or else a node per machine. An error of one
/// rank is thrown on all: Error(mismatch) for other builds, nodes or networks, Error(invalid_argument) for nodes that
/// span machines, Error(deadline), Error(peer_lost), Error(system).
Joined join(Bootstrap& bootstrap, const Environment& environment, const std::optional<Topology>& topology);

/// Rebuilds a world after ranks were lost.
class Rebuilder {
 public:
  struct Rebuilt {
    Joined joined;
    std::vector<RankId> survivors;  ///< the new ranks' old ones, ascending
  };

  Rebuilder(const Environment& environment, bootstrap::SurvivorContacts contacts)
      : environment_(environment), contacts_(std::move(contacts)) {}

  /// Collective over the ranks of `old` that are left after its fault, once. They join within SHUNT_JOIN_MS, with new
  /// memory and connections, which no other rank of `old` can reach. Throws as bootstrap::join_survivors and join do.
  Rebuilt rebuild(Transport& old, const Topology& topology);

 private:
  Environment environment_;
  bootstrap::SurvivorContacts contacts_;
};

}  // namespace shunt
