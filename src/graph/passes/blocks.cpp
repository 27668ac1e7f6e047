#include "graph/passes/blocks.hpp"

#include <unordered_map>

#include "graph/split.hpp"

namespace shunt::graph {
namespace {

bool reads_residual_stream(const Graph& graph, const Op& op) {
  if (op.kind != OpKind::norm) return false;
  const OpKind source = graph.op(graph.value(op.operands[0]).producer).kind;
  return source == OpKind::add || source == OpKind::embedding;
}

/// True if this is the last dX of the block's first op.
bool ends_backward_of(const Op& op, const Op& first) {
  if (first.kind == OpKind::plan)
    return op.kind == OpKind::combine && op.operands.size() == 2 && op.operands[1] == first.results[0];
  return op.kind == OpKind::norm_dx && op.operands[1] == first.operands[0] && op.operands[2] == first.operands[1];
}

bool is_weight_gradient_beside(const Op& op) { return op.kind == OpKind::norm_dw || op.kind == OpKind::reduce; }

}  // namespace

Blocks find_blocks(const Graph& graph) {
  const std::optional<DimId> batch = find_batch(graph);
  Blocks blocks;
  blocks.of_op.assign(graph.ops().size(), -1);
  blocks.plan_of_op.assign(graph.ops().size(), -1);
  std::vector<OpId> firsts = {OpId(std::size_t{0})};
  blocks.has_plan.push_back(false);
  blocks.moe_layer.push_back(-1);
  std::unordered_map<DimId, std::int32_t> plan_block;  // by rows
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.op(OpId(i));
    if (op.origin.phase != Phase::forward) continue;
    const bool is_plan = op.kind == OpKind::plan && batch && graph.type(op.results[0]).has(*batch);
    if (reads_residual_stream(graph, op) || is_plan) {
      firsts.emplace_back(i);
      blocks.has_plan.push_back(is_plan);
      blocks.moe_layer.push_back(is_plan ? op.origin.layer : -1);
    }
    blocks.of_op[i] = static_cast<std::int32_t>(firsts.size()) - 1;
    if (is_plan) plan_block[op.attributes.dims("rows")[0]] = blocks.of_op[i];
  }
  blocks.count = static_cast<std::int32_t>(firsts.size());
  std::int32_t current = blocks.count - 1;
  bool has_ended = false;
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.op(OpId(i));
    if (op.origin.phase != Phase::backward || op.kind == OpKind::all_reduce) continue;
    if (has_ended && !is_weight_gradient_beside(op)) {
      --current;
      has_ended = false;
    }
    blocks.of_op[i] = current;
    if (current > 0) has_ended |= ends_backward_of(op, graph.op(firsts[static_cast<std::size_t>(current)]));
  }
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.op(OpId(i));
    const auto look = [&](ValueId value) {
      for (const DimId dim : graph.type(value).dims)
        if (const auto found = plan_block.find(dim); found != plan_block.end()) blocks.plan_of_op[i] = found->second;
    };
    for (const ValueId operand : op.operands) look(operand);
    for (const ValueId result : op.results) look(result);
  }
  return blocks;
}

}  // namespace shunt::graph
