// Splits weight gradients along their output columns: each piece computes its columns with the bits of the whole.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/cost.hpp"
#include "graph/graph.hpp"

namespace shunt::graph {

/// pieces[op] > 1 splits a matrix product along the widest dimension of its result that is not summed over.
Graph cut_columns(const Graph& graph, const std::vector<std::int32_t>& pieces);

/// By op: the number of pieces of a weight gradient such that none takes longer than `seconds`. Pieces stay wide enough
/// for the device's tiles.
std::vector<std::int32_t> pieces_for(const Graph& graph, const CostModel& cost, double seconds);

}  // namespace shunt::graph
