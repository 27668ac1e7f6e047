// Dependencies between ops, and the order in which an unoptimised framework would run a step.
#pragma once

#include <vector>

#include "graph/graph.hpp"

namespace shunt::graph {

/// By op, ascending, without duplicates: the ops that must end before it may start, which are the producers of its
/// operands and every reader of what it overwrites, also through views.
std::vector<std::vector<OpId>> dependencies(const Graph& graph);

/// Places each op as early as its dependencies permit, updates last; so an all-reduce directly follows its gradient.
Graph in_program_order(const Graph& graph);

}  // namespace shunt::graph
