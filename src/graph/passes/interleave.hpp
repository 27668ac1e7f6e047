// Two micro-batches, the first's backward against the second's forward (as DualPipe and Megatron-Core do).
#pragma once

#include "graph/passes/pass.hpp"

namespace shunt::graph {

/// Cuts the whole step into two micro-batches of one or more parts each; the first goes before the second. Returns the
/// graph as it is unless the context asks for it.
Graph interleave(const Graph& graph, PassContext& context);

}  // namespace shunt::graph
