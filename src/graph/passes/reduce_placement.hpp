// Puts reductions of gradients where the links are idle.
#pragma once

#include "graph/passes/pass.hpp"

namespace shunt::graph {

/// Places reductions of gradients where the links are idle. Tries, by simulation: the given positions; behind the last
/// all-to-all; and each reduction in the first gap of the links that is long enough for it.
Graph place_reductions(const Graph& graph, PassContext& context);

}  // namespace shunt::graph
