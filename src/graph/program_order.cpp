#include "graph/program_order.hpp"

#include <algorithm>

namespace shunt::graph {

std::vector<std::vector<OpId>> dependencies(const Graph& graph) {
  std::vector<std::vector<OpId>> all(graph.ops().size());
  const std::vector<std::size_t> alias_class = alias_classes(graph);
  std::vector<std::vector<OpId>> readers(graph.values().size());  // by alias class
  for (std::size_t i = 0; i < graph.ops().size(); ++i)
    for (const ValueId operand : graph.op(OpId(i)).operands) readers[alias_class[operand.index()]].emplace_back(i);
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.op(OpId(i));
    for (std::size_t o = 0; o < op.operands.size(); ++o) {
      all[i].push_back(graph.value(op.operands[o]).producer);
      if (!info(op.kind).overwrites(o)) continue;
      for (const OpId reader : readers[alias_class[op.operands[o].index()]])
        if (reader != OpId(i)) all[i].push_back(reader);
    }
    std::sort(all[i].begin(), all[i].end());
    all[i].erase(std::unique(all[i].begin(), all[i].end()), all[i].end());
  }
  return all;
}

Graph in_program_order(const Graph& graph) {
  const std::vector<std::vector<OpId>> needs = dependencies(graph);
  std::vector<bool> is_update(graph.ops().size()), is_reduce(graph.ops().size());
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.op(OpId(i));
    is_update[i] = op.origin.phase == Phase::update && op.kind != OpKind::state;
    is_reduce[i] = reduces_gradient(op);
  }
  std::vector<std::vector<OpId>> reduces(graph.ops().size());  // by the op that computes the gradient
  for (std::size_t i = 0; i < graph.ops().size(); ++i)
    if (is_reduce[i]) reduces[needs[i].back().index()].emplace_back(i);
  std::vector<OpId> order;
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    if (is_update[i] || is_reduce[i]) continue;
    order.emplace_back(i);
    order.insert(order.end(), reduces[i].begin(), reduces[i].end());
  }
  for (std::size_t i = 0; i < graph.ops().size(); ++i)
    if (is_update[i]) order.emplace_back(i);
  return graph.reordered(order);
}

}  // namespace shunt::graph
