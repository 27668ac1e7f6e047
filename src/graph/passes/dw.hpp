// Moves weight gradients behind all-to-alls that are exposed (Lancet, section 4).
#pragma once

#include "graph/passes/coverage.hpp"
#include "graph/passes/pass.hpp"

namespace shunt::graph {

/// The gaps are what each all-to-all exposes when every weight gradient waits until the end; a weight gradient may fill
/// the gap of any all-to-all that is launched when its operands are there. Greedy first, then an exact search that
/// starts from it; the gap to the proven bound goes into the context. Weight gradients are also tried in pieces that
/// fit.
Graph schedule_weight_gradients(const Graph& graph, PassContext& context);

}  // namespace shunt::graph
