// Orders the parts of a split step: which part goes first, and what only fills gaps.
#pragma once

#include <vector>

#include "graph/list_schedule.hpp"
#include "graph/passes/compact.hpp"
#include "graph/program.hpp"
#include "graph/split.hpp"

namespace shunt::graph {

/// Parts of one window of so many go before those of later windows; inside a window the part with the longest way to go
/// goes first. Weight gradients and reductions of gradients fill gaps, updates come last.
std::vector<Priority> pipeline_priorities(const SplitGraph& split, const Program& program, std::int32_t window);

/// The split step in the order that these priorities give, compacted.
Ordered pipelined(const SplitGraph& split, const PassContext& context, std::int32_t window);

}  // namespace shunt::graph
