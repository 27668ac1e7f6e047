// Whether gradients are those of the loss, by trying.
#pragma once

#include <utility>
#include <vector>

#include "graph/graph.hpp"

namespace shunt::graph::test {

/// Compares central differences of all ranks' loss along single entries of every parameter with what `graph` computes.
/// `gradients`: of each parameter, as append_backward gives them. Entries whose change turns a token to another expert
/// are left out, as the loss has no derivative there.
void expect_finite_differences(const Graph& forward, const Graph& graph,
                               const std::vector<std::pair<ValueId, ValueId>>& gradients, std::uint64_t seed);

}  // namespace shunt::graph::test
