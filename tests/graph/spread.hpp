// One step on several ranks: what they make together, and which share of a batch and its experts is whose.
#pragma once

#include "graph/interpreter.hpp"

namespace shunt::graph::test {

/// The sum of what each rank adds to the loss. Terms that follow an all-reduce are of all ranks' tokens and count once.
double global_loss(const Graph& graph, const RankValues& values);

/// A rank's share of a tensor that one rank alone holds whole: dimensions that are longer there are cut by rank.
Tensor share_of(const Tensor& whole, const Graph& of_rank, std::size_t rank);

}  // namespace shunt::graph::test
