// Orders the parts of a split step: which part goes first, and what only fills gaps.
#pragma once

#include <vector>

#include "graph/list_schedule.hpp"
#include "graph/passes/pass.hpp"
#include "graph/program.hpp"
#include "graph/split.hpp"

namespace shunt::graph {

/// Parts of one window of so many go before those of later windows; inside a window the part with the longest way to go
/// goes first. Weight gradients and reductions of gradients fill gaps, updates come last.
std::vector<Priority> pipeline_priorities(const SplitGraph& split, const Program& program, std::int32_t window);

struct Pipeline {
  Graph graph;
  Outcome outcome;
};

/// The split step in the order that these priorities give.
Pipeline pipelined(const SplitGraph& split, const CostModel& cost, std::int32_t window);

/// Whether a is the better choice: nearer to obeying the cap, else faster.
bool is_better(const Outcome& a, const Outcome& b, std::int64_t memory_cap_bytes);

}  // namespace shunt::graph
