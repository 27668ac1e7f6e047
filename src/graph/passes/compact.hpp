// Removes gaps from an order without changing the ops.
#pragma once

#include "graph/passes/pass.hpp"

namespace shunt::graph {

struct Ordered {
  Graph graph;
  Outcome outcome;
};

/// The graph with the tasks of its program in this order, or justified once or twice (list_schedule.hpp), whichever is
/// best.
Ordered compacted(const Graph& graph, const Program& program, std::vector<TaskId> order, const PassContext& context);

/// True if a is better: closer to satisfying the cap, else faster.
bool is_better(const Outcome& a, const Outcome& b, std::int64_t memory_cap_bytes);

}  // namespace shunt::graph
