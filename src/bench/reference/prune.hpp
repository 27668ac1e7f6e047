// Pruning as docs/concepts/pruning.md words it, slow and obvious.
#pragma once

#include <span>

#include "shunt/pruning.hpp"

namespace shunt {

/// Arguments as of prune().
PrunedRouting reference_prune(const Routing& routing, std::span<const float> scores, const ExpertMap& map,
                              const Topology& topology, const PruneOptions& options);

}  // namespace shunt
