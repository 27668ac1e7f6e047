// Local search for copies of experts: which experts have copies, and where, evaluated with the planner's choice of
// copies.
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
  double most_load;  ///< limit per rank, relative to the mean, on the sample
};

/// Fills the free places of each rank (`places` in total, evenly) with copies of experts, each where it saves the most
/// tokens a rank that they touch for this expert only.
Holdings add_copies(const RoutedTokens& sample, Holdings holdings, std::size_t places);

/// Simulated annealing with two kinds of change: two experts of different ranks are swapped; an expert with another
/// copy is replaced by a copy of another expert. Deterministic. Returns the best result within the load limit or, if
/// there is none, the one with the fewest excess rows.
Holdings search_replicas(const ReplicaProblem& problem, const Holdings& start, int proposals, Random random);

}  // namespace shunt::placement
