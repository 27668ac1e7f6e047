// Cuts weight gradients along their output columns: each piece computes its columns as the whole would, bit for bit.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/cost.hpp"
#include "graph/graph.hpp"

namespace shunt::graph {

/// pieces[op] > 1 cuts a matrix product along the widest dimension of its result that is not summed over.
Graph cut_columns(const Graph& graph, const std::vector<std::int32_t>& pieces);

/// By op: in how many pieces weight gradients should be cut so that none takes longer than `seconds`. Pieces stay wide
/// enough for the device's tiles.
std::vector<std::int32_t> pieces_for(const Graph& graph, const CostModel& cost, double seconds);

}  // namespace shunt::graph
