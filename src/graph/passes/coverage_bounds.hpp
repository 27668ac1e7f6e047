// Upper bounds on the coverage of any assignment of items to gaps.
#pragma once

#include <cstdint>

#include "graph/passes/coverage.hpp"

namespace shunt::graph {

/// Relaxation in which items may be divided among several gaps: a maximum flow.
double flow_bound(const CoverageProblem& problem);

/// Relaxation in which items may be divided, but a share of an item covers only that share of a gap shorter than the
/// item: one long item does not fill many short gaps. The Lagrangian dual, at prices found by subgradient steps towards
/// `covered_s`, which some assignment reaches. Visits at most `most_looks` pairs of items and gaps.
double dual_bound(const CoverageProblem& problem, double covered_s, std::uint64_t most_looks);

}  // namespace shunt::graph
