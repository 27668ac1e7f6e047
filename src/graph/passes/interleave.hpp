// Interleaves two micro-batches.
#pragma once

#include "graph/passes/pass.hpp"

namespace shunt::graph {

/// Interleaves two micro-batches, the first's backward with the second's forward (as DualPipe and Megatron-Core do):
/// splits the whole step, as it was before any pass, into two micro-batches of one or more parts each; the first
/// precedes the second. The runner chooses between this and the result of partition. Returns the graph unchanged unless
/// the context requests it.
Graph interleave(const Graph& graph, PassContext& context);

}  // namespace shunt::graph
