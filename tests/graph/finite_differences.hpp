// Numerical verification of gradients.
#pragma once

#include <utility>
#include <vector>

#include "graph/graph.hpp"

namespace shunt::graph::test {

/// Compares central differences of all ranks' loss along single entries of every parameter with the gradients that
/// `graph` computes. gradients: the result of append_backward. Entries whose change routes a token to another expert
/// are omitted, because the loss has no derivative there.
void expect_finite_differences(const Graph& forward, const Graph& graph,
                               const std::vector<std::pair<ValueId, ValueId>>& gradients, std::uint64_t seed);

}  // namespace shunt::graph::test
