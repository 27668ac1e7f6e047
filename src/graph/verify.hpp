// The invariants of every graph that passes return.
#pragma once

#include "graph/graph.hpp"

namespace shunt::graph {

/// Throws Error(invalid_argument) that names the op and what is wrong: a value used before its definition, types that
/// do not follow from operands, a value read after an update or an all-reduce has overwritten its memory.
void verify(const Graph& graph);

}  // namespace shunt::graph
