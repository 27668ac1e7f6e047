// Which ranks form a node, as the environment declares it and as all ranks see it.
#pragma once

#include "engine/world_impl.hpp"

namespace shunt {

/// What SHUNT_TOPOLOGY says; without it, SHUNT_VIRTUAL_NODES runs of ranks. Throws Error(invalid_argument).
Topology declared_nodes(const Environment& environment, std::int32_t num_ranks);

/// Gives a world whose ranks have just met the nodes that its environment declares. Its topology is one node per host;
/// it stays so on several hosts without SHUNT_TOPOLOGY. Collective: if a rank's can't be, or differ from rank 0's, all
/// throw Error(invalid_argument) or Error(mismatch) that names the ranks.
void settle_nodes(World::Impl& world);

}  // namespace shunt
