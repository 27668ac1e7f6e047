#include "graph/passes/lancet.hpp"

#include "graph/passes/passes.hpp"
#include "graph/passes/pipeline.hpp"
#include "graph/passes/range_costs.hpp"

namespace shunt::graph {
namespace {

bool is_forward(const Op& op) { return op.origin.phase == Phase::forward; }

/// The forward pass in the order of the pipeline, everything else in the order of the split.
Graph with_pipelined_forward(const SplitGraph& split, const PassContext& context) {
  const Graph pipelined = graph::pipelined(split, context, 1).graph;
  std::vector<OpId> order;
  for (const Op& op : pipelined.ops())
    if (is_forward(op) && !op.results.empty()) order.push_back(split.graph.value(op.results[0]).producer);
  for (std::size_t i = 0; i < split.graph.ops().size(); ++i)
    if (!is_forward(split.graph.op(OpId(i)))) order.emplace_back(i);
  return split.graph.reordered(order);
}

}  // namespace

Graph lancet(const Graph& graph, const CostModel& cost) {
  PassContext context{.cost = cost, .notes = {}};
  const Blocks blocks = find_blocks(graph);
  Graph best = graph;
  for (const std::vector<Cut>& cuts : ranges_to_try(graph, context, {BackwardReach::shuffle})) {
    Graph candidate = with_pipelined_forward(split(graph, parts_of_ops(graph, blocks, cuts)), context);
    if (is_better(evaluate(candidate, cost), evaluate(best, cost), 0)) best = std::move(candidate);
  }
  Graph placed = place_weight_gradients_greedily(best, context);
  return is_better(evaluate(placed, cost), evaluate(best, cost), 0) ? placed : best;
}

}  // namespace shunt::graph
