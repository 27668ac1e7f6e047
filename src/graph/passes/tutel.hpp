// The baseline: only the shuffle and its experts are pipelined, as in Tutel (arXiv 2206.03382).
#pragma once

#include "graph/passes/pass.hpp"

namespace shunt::graph {

struct Tutel {
  Graph graph;
  std::int32_t parts = 1;
  Outcome outcome;
  /// The step time if each direction had its own best number of parts. A graph has one number for both, because rows
  /// belong to the plan of their part.
  double apart_s = 0;
};

/// The best of 1, 2, 4 and 8 parts, found by simulation; the same for all layers, because a model's MoE layers are
/// equal. Everything else stays in program order.
Tutel tutel(const Graph& graph, const CostModel& cost);

}  // namespace shunt::graph
