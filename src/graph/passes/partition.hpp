// Splits ranges of blocks along the batch and pipelines their parts, forward and backward (Lancet, section 5, whose
// backward is never split).
#pragma once

#include "graph/passes/pass.hpp"

namespace shunt::graph {

/// Ranges and numbers of parts come from dynamic programming over blocks with simulated times; the order of parts, and
/// whether one range over everything does better, from simulating the whole step. Only what obeys the memory cap
/// counts. Returns the graph as it is where it has no batch, no plan, or nothing that helps.
Graph partition(const Graph& graph, PassContext& context);

}  // namespace shunt::graph
