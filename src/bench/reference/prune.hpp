// A slow, obvious implementation of docs/concepts/pruning.md.
#pragma once

#include <span>

#include "shunt/pruning.hpp"

namespace shunt {

/// Same arguments as prune().
PrunedRouting reference_prune(const Routing& routing, std::span<const float> scores, const ExpertMap& map,
                              const Topology& topology, const PruneOptions& options);

}  // namespace shunt
