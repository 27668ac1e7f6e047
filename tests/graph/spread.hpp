// One step on several ranks: the common result, and each rank's share of a batch and its experts.
#pragma once

#include "graph/interpreter.hpp"

namespace shunt::graph::test {

/// The sum of the ranks' contributions to the loss. Terms after an all-reduce are over all ranks' tokens and count
/// once.
double global_loss(const Graph& graph, const RankValues& values);

/// A rank's share of a tensor that is whole on a single rank: dimensions that are longer there are divided by rank.
Tensor share_of(const Tensor& whole, const Graph& of_rank, std::size_t rank);

}  // namespace shunt::graph::test
