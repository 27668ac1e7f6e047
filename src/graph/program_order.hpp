// Who waits for whom, and the order in which an unoptimised framework would run a step.
#pragma once

#include <vector>

#include "graph/graph.hpp"

namespace shunt::graph {

/// What must have ended before an op may start: producers of its operands, and every reader of what it overwrites,
/// through views too. By op, ascending, without duplicates.
std::vector<std::vector<OpId>> dependencies(const Graph& graph);

/// Each op as early as possible behind what it needs, updates last: so an all-reduce follows its gradient at once.
Graph in_program_order(const Graph& graph);

}  // namespace shunt::graph
