// The baseline to beat: only the shuffle and its experts are pipelined, as Tutel does (arXiv 2206.03382).
#pragma once

#include "graph/passes/pass.hpp"

namespace shunt::graph {

struct Tutel {
  Graph graph;
  std::int32_t parts = 1;
  Outcome outcome;
  /// The step if each direction had the best number for itself; rows belong to the plan of their part, so that a graph
  /// has the same number both ways.
  double apart_s = 0;
};

/// The best of 1, 2, 4 and 8 parts, found by simulation, for all layers, as a model's MoE layers are equal. Everything
/// else stays in program order.
Tutel tutel(const Graph& graph, const CostModel& cost);

}  // namespace shunt::graph
