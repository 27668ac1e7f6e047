// Orders the parts of a split step: which part goes first, and what fills gaps; and removes gaps from an order.
#pragma once

#include <vector>

#include "graph/list_schedule.hpp"
#include "graph/passes/compact.hpp"
#include "graph/program.hpp"
#include "graph/split.hpp"

namespace shunt::graph {

/// The parts of one window precede those of later windows; inside a window of this many parts, the part with the
/// longest remaining chain goes first. Weight gradients and reductions of gradients fill gaps; updates come last.
std::vector<Priority> pipeline_priorities(const SplitGraph& split, const Program& program, std::int32_t window);

/// The split step in the order given by these priorities, compacted.
Ordered pipelined(const SplitGraph& split, const PassContext& context, std::int32_t window);

}  // namespace shunt::graph
