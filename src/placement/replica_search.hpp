// Local search for copies of experts: which experts get them, and where, counted with the planner's choice of copies.
#pragma once

#include <cstdint>
#include <vector>

#include "placement/partition_search.hpp"
#include "placement/random.hpp"
#include "placement/routed_tokens.hpp"
#include "shunt/topology.hpp"

namespace shunt::placement {

/// [ranks]: each rank's experts, in any order.
using Holdings = std::vector<std::vector<std::int32_t>>;

struct ReplicaProblem {
  const RoutedTokens& sample;
  const Topology& topology;
  Objective objective;
  double most_load;  ///< of a rank, over the mean, on the sample
};

/// Fills the places that are free on each rank (`places` in all, evenly) with copies of experts, each where it spares
/// most tokens a rank that they touch for this expert alone.
Holdings add_copies(const RoutedTokens& sample, Holdings holdings, std::size_t places);

/// Simulated annealing over two changes: two experts of different ranks swap places; an expert that has another copy
/// makes way for a copy of another expert. Deterministic. Result: the best that was within the load limit, or the one
/// with the fewest rows beyond it.
Holdings search_replicas(const ReplicaProblem& problem, const Holdings& start, int proposals, Random random);

}  // namespace shunt::placement
