#include "graph/spread.hpp"

#include <algorithm>

#include "graph/tensor_space.hpp"

namespace shunt::graph::test {
namespace {

std::vector<bool> follows_all_reduce(const Graph& graph) {
  std::vector<bool> follows(graph.values().size());
  for (const Op& op : graph.ops()) {
    const bool does = op.kind == OpKind::all_reduce || std::any_of(op.operands.begin(), op.operands.end(),
                                                                   [&](ValueId v) { return follows[v.index()]; });
    for (const ValueId result : op.results) follows[result.index()] = does;
  }
  return follows;
}

}  // namespace

double global_loss(const Graph& graph, const RankValues& values) {
  const std::vector<bool> follows = follows_all_reduce(graph);
  const ValueId loss = graph.outputs.front();
  const Op& last = graph.op(graph.value(loss).producer);
  double sum = 0;
  for (const ValueId term : last.kind == OpKind::add ? last.operands : std::vector{loss})
    for (std::size_t rank = 0; rank < (follows[term.index()] ? 1 : values.size()); ++rank)
      sum += values[rank].at(graph.value(term).name).data[0];
  return sum;
}

Tensor share_of(const Tensor& whole, const Graph& of_rank, std::size_t rank) {
  Tensor share;
  share.dims = whole.dims;
  Space space;
  for (const DimId dim : whole.dims) {
    share.sizes.push_back(of_rank.dims[dim].size);
    space.add(dim, share.sizes.back());
  }
  for_each(space, [&](Index& i) {
    Index source = i;
    for (std::size_t d = 0; d < whole.dims.size(); ++d)
      if (whole.sizes[d] > share.sizes[d]) source[whole.dims[d]] += static_cast<std::int64_t>(rank) * share.sizes[d];
    share.data.push_back(at(whole, source));
  });
  return share;
}

}  // namespace shunt::graph::test
