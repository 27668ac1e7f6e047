// Two micro-batches, the first's backward against the second's forward (as DualPipe and Megatron-Core do).
#pragma once

#include "graph/passes/pass.hpp"

namespace shunt::graph {

/// Cuts the whole step, as it was before any pass, into two micro-batches of one or more parts each; the first goes
/// before the second. So the runner can choose between this and what partition made. Returns the graph as it is unless
/// the context asks for it.
Graph interleave(const Graph& graph, PassContext& context);

}  // namespace shunt::graph
