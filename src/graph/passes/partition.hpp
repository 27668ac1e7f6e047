// Splits ranges of blocks along the batch and pipelines their parts, forward and backward (Lancet, section 5, whose
// backward is never split).
#pragma once

#include "graph/passes/pass.hpp"

namespace shunt::graph {

/// Splits ranges of blocks along the batch and pipelines their parts, forward and backward (Lancet, section 5, whose
/// backward is never split). Dynamic programming over blocks with simulated times selects ranges and numbers of parts;
/// simulating the whole step selects the order of parts, and whether one range over everything is better. Only results
/// within the memory cap count. Returns the graph unchanged if it has no batch or no plan, or if nothing helps.
Graph partition(const Graph& graph, PassContext& context);

}  // namespace shunt::graph
