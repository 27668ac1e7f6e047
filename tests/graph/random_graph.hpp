// Random graphs of table ops on fitting operands, beyond what model descriptions can express.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "graph/graph.hpp"

namespace shunt::graph::test {

/// A forward pass. The first output is the loss; the others are results of opaque ops, through which no gradient flows.
/// Some graphs have no batch, no plan, two plans of the same tokens, or a plan whose rows have no users.
Graph random_forward(std::uint64_t seed);

struct RandomStep {
  Graph forward;
  Graph backward;  ///< forward and the gradients
  std::vector<std::pair<ValueId, ValueId>> gradients;
  Graph step;  ///< and updates, in program order; some scale a gradient between its all-reduce and its update
};

RandomStep random_step(std::uint64_t seed);

}  // namespace shunt::graph::test
