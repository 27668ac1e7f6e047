// The baseline of Lancet (arXiv 2404.19429): forward ranges and greedy weight gradients.
#pragma once

#include "graph/passes/pass.hpp"

namespace shunt::graph {

/// Ranges of layers are cut along the batch and pipelined in the forward pass (section 5), and weight gradients placed
/// behind all-to-alls by best fit (section 4.2). Backward, a layer's rows are in the parts of their plans, which run
/// back to back, as Lancet never splits it. Reductions stay where their gradients are ready.
Graph lancet(const Graph& graph, const CostModel& cost);

}  // namespace shunt::graph
