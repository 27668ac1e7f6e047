#include "graph/passes/compact.hpp"

#include <algorithm>

#include "graph/justify.hpp"

namespace shunt::graph {
namespace {

constexpr int kRounds = 2;  // further rounds changed no preset's step by 0.1 %

}  // namespace

Ordered compacted(const Graph& graph, const Program& program, std::vector<TaskId> order, const PassContext& context) {
  const Cluster& cluster = context.cost.cluster();
  std::vector<bool> waits;
  for (const Task& task : program.tasks) waits.push_back(reduces_gradient(graph.op(task.op)));
  Outcome best = evaluate(graph, program.reordered(order), cluster);
  ListSchedule schedule{order, std::vector<double>(order.size()), best.timeline.step_s};
  for (TaskId i = 0; i < order.size(); ++i) schedule.end_s[order[i]] = best.timeline.spans[i].end_s;
  for (int round = 0; round < kRounds; ++round) {
    schedule = justified(program, cluster, waits, schedule);
    Outcome candidate = evaluate(graph, program.reordered(schedule.order), cluster);
    if (!is_better(candidate, best, context.memory_cap_bytes)) continue;
    best = std::move(candidate);
    order = schedule.order;
  }
  return {with_order(graph, program, order), std::move(best)};
}

bool is_better(const Outcome& a, const Outcome& b, std::int64_t memory_cap_bytes) {
  const auto excess = [&](const Outcome& outcome) {
    return memory_cap_bytes == 0 ? 0 : std::max<std::int64_t>(0, outcome.memory.peak_bytes - memory_cap_bytes);
  };
  if (excess(a) != excess(b)) return excess(a) < excess(b);
  return a.timeline.step_s < b.timeline.step_s;
}

}  // namespace shunt::graph
