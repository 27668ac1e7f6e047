// Where ranges of a step may begin and end: blocks of layers, forward and mirrored backward.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.hpp"

namespace shunt::graph {

/// A block begins where a norm reads the residual stream, and at a plan of the batch's tokens, so that a dispatch is
/// never cut off from its combine.
struct Blocks {
  std::int32_t count = 0;
  std::vector<std::int32_t> of_op;       ///< forward and backward ops; −1: belongs to none
  std::vector<std::int32_t> plan_of_op;  ///< ops that touch such a plan's rows: its block; else −1
  std::vector<bool> has_plan;            ///< by block
  std::vector<std::int32_t> moe_layer;   ///< by block: its plan's layer; −1: none
};

/// For a step in program order.
Blocks find_blocks(const Graph& graph);

}  // namespace shunt::graph
