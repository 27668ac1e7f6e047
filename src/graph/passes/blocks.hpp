// Blocks of layers, forward and mirrored backward, which are the units of ranges of a step.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.hpp"

namespace shunt::graph {

/// A block begins where a norm reads the residual stream, and at a plan of the batch's tokens, so that a dispatch stays
/// with its combine.
struct Blocks {
  std::int32_t count = 0;
  std::vector<std::int32_t> of_op;       ///< by op: the block of forward and backward ops; −1: none
  std::vector<std::int32_t> plan_of_op;  ///< by op: the block whose plan's rows it touches; −1: none
  std::vector<bool> has_plan;            ///< by block
  std::vector<std::int32_t> moe_layer;   ///< by block: the layer of its plan; −1: none
};

/// The graph must be in program order.
Blocks find_blocks(const Graph& graph);

}  // namespace shunt::graph
