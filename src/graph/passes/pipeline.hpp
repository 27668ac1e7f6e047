// Orders the parts of a split step: which part goes first, and what fills gaps; and removes gaps from an order.
#pragma once

#include <vector>

#include "graph/list_schedule.hpp"
#include "graph/passes/pass.hpp"
#include "graph/program.hpp"
#include "graph/split.hpp"

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

/// The parts of one window precede those of later windows; inside a window of this many parts, the part with the
/// longest remaining chain goes first. Weight gradients and reductions of gradients fill gaps; updates come last.
std::vector<Priority> pipeline_priorities(const SplitGraph& split, const Program& program, std::int32_t window);

/// The split step in the order given by these priorities, compacted.
Ordered pipelined(const SplitGraph& split, const PassContext& context, std::int32_t window);

}  // namespace shunt::graph
