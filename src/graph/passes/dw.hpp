// Moves weight gradients behind exposed all-to-alls (Lancet, section 4).
#pragma once

#include "graph/passes/coverage.hpp"
#include "graph/passes/pass.hpp"

namespace shunt::graph {

/// Moves weight gradients behind exposed all-to-alls (Lancet, section 4). The gaps are what each all-to-all exposes
/// when every weight gradient waits until the end. A weight gradient may fill the gap of any all-to-all that is
/// launched after its operands exist. Assigns greedily first, then by an exact search that starts from that; the gap to
/// the proven bound goes into the context. Also tries weight gradients in pieces that fit.
Graph schedule_weight_gradients(const Graph& graph, PassContext& context);

}  // namespace shunt::graph
