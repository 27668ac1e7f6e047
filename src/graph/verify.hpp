// What holds for every graph that passes hand on.
#pragma once

#include "graph/graph.hpp"

namespace shunt::graph {

/// Throws Error(invalid_argument) that names the op and what is wrong: a value used before its definition, types that
/// do not follow from operands, a parameter read after its update.
void verify(const Graph& graph);

}  // namespace shunt::graph
