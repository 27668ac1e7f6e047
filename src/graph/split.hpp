// Splits ops into parts along the batch without changing the result of the graph.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/graph.hpp"

namespace shunt::graph {

struct SplitGraph {
  Graph graph;
  std::vector<OpId> source;        ///< by new op: the op it is a part of, or the first that needed it (views, sums)
  std::vector<std::int32_t> part;  ///< by new op; 0 if it is whole
};

/// parts[op] > 1 splits the op into that many parts. Parts of adjacent ops with equal numbers are connected directly;
/// elsewhere whole values are joined or split, which costs nothing. Sums over the batch (counts, losses, gradients of
/// experts) are added up over parts, and a capacity shared by parts is passed from part to part. Rows belong to the
/// plan of their part, so all their users must be split alike. Throws Error(invalid_argument) if an op can't be split.
SplitGraph split(const Graph& graph, const std::vector<std::int32_t>& parts);

/// The only dimension of role batch; none if there is none, or several.
std::optional<DimId> find_batch(const Graph& graph);

/// The same, but throws Error(invalid_argument) if there is none, or several.
DimId batch_of(const Graph& graph);

/// True if the batch has already been split.
bool is_split(const Graph& graph);

/// True if an op depends on the batch and can be split along it.
bool is_cut_by_batch(const Graph& graph, const Op& op, DimId batch);

/// The effect on an op of splitting the batch: the batch itself and the rows that come from it. Ops with values of both
/// are never split, because a part would lack what one of them contributes with another part's rows.
Split batch_split(const Graph& graph, const Op& op, DimId batch);

/// True if an op touches rows, so that it must be split as the plan is.
bool touches_rows(const Graph& graph, const Op& op);

/// The largest number of parts such that none is empty. 1 if there is no batch, if something that touches rows of its
/// tokens can't be split, and if such rows are returned.
std::int64_t most_parts(const Graph& graph);

}  // namespace shunt::graph
