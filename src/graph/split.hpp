// Cuts ops into parts along the batch without changing what the graph computes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/graph.hpp"

namespace shunt::graph {

struct SplitGraph {
  Graph graph;
  std::vector<OpId> source;        ///< by new op: the op it is a part of, or that first needed it (views, sums)
  std::vector<std::int32_t> part;  ///< by new op; 0 where it is whole
};

/// parts[op] > 1 cuts the op along the batch into so many. Parts of neighbours with equal numbers are joined directly;
/// elsewhere whole values are joined or cut, which costs nothing. Sums over the batch (counts, losses, gradients of
/// experts) are added up over parts, and a capacity that parts share is handed from part to part. Rows belong to the
/// plan of their part, so whoever uses them must be cut alike. Throws Error(invalid_argument) where an op can't be cut.
SplitGraph split(const Graph& graph, const std::vector<std::int32_t>& parts);

/// The one dimension of role batch; nothing where there is none, or several.
std::optional<DimId> find_batch(const Graph& graph);

/// The same for whom there must be one. Throws Error(invalid_argument) where there is none, or several.
DimId batch_of(const Graph& graph);

/// Whether the batch has been cut already.
bool is_split(const Graph& graph);

/// Whether an op has anything to do with the batch and can be cut along it.
bool is_cut_by_batch(const Graph& graph, const Op& op, DimId batch);

/// What cutting the batch makes of an op: of the batch itself and of the rows that come from it. Parts would miss what
/// one of them gives with another's rows, so a value of both is never cut.
Split batch_split(const Graph& graph, const Op& op, DimId batch);

/// Whether an op touches rows, so that it must be cut as the plan is.
bool touches_rows(const Graph& graph, const Op& op);

/// Into how many parts everything can be cut so that none is empty. 1 where there is no batch, where something that
/// touches rows of its tokens can't be cut, and where such rows are returned.
std::int64_t most_parts(const Graph& graph);

}  // namespace shunt::graph
