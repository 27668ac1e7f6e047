// What no placement of items into gaps can exceed.
#pragma once

#include <cstdint>

#include "graph/passes/coverage.hpp"

namespace shunt::graph {

/// Items may be cut at will and fill several gaps: a maximum flow.
double flow_bound(const CoverageProblem& problem);

/// Items may be cut, but a share of an item covers only that share of a gap shorter than it: one long item does not
/// fill many short gaps. The Lagrangian dual of that relaxation, at prices found by subgradient steps towards
/// `covered_s`, which some placement reaches, looking at no more than `most_looks` pairs of items and gaps.
double dual_bound(const CoverageProblem& problem, double covered_s, std::uint64_t most_looks);

}  // namespace shunt::graph
