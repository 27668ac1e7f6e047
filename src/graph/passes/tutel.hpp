// The baseline to beat: only the shuffle and its experts are pipelined, as Tutel does (arXiv 2206.03382).
#pragma once

#include "graph/cost.hpp"
#include "graph/graph.hpp"

namespace shunt::graph {

/// The best of 1, 2, 4 and 8 parts for each kind of layer, found by simulation; forward and backward alike, as rows
/// belong to the plan of their part. Everything else stays in program order.
Graph tutel(const Graph& graph, const CostModel& cost);

}  // namespace shunt::graph
