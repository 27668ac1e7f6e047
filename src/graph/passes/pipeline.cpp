#include "graph/passes/pipeline.hpp"

#include <algorithm>
#include <numeric>

#include "graph/autodiff.hpp"
#include "graph/list_schedule.hpp"

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

std::vector<Priority> pipeline_priorities(const SplitGraph& split, const Program& program, std::int32_t window) {
  const std::vector<double> tails = longest_tails(program);
  const std::vector<bool> is_weight_gradient = weight_gradients(split.graph);
  std::vector<Priority> priorities(program.tasks.size());
  for (TaskId task = 0; task < program.tasks.size(); ++task) {
    const OpId op = program.tasks[task].op;
    const Origin& origin = split.graph.op(op).origin;
    priorities[task] = {split.part[op.index()] / window, tails[task]};
    if (is_weight_gradient[op.index()] || reduces_gradient(split.graph.op(op)))
      priorities[task].rank = Priority::kFiller;
    if (origin.phase == Phase::update) priorities[task].rank = Priority::kFiller + 1;
  }
  return priorities;
}

Ordered pipelined(const SplitGraph& split, const PassContext& context, std::int32_t window) {
  const Program program = make_program(split.graph, context.cost);
  std::vector<TaskId> all(program.tasks.size());
  std::iota(all.begin(), all.end(), TaskId{0});
  const auto priorities = pipeline_priorities(split, program, window);
  return compacted(split.graph, program, list_schedule(program, context.cost.cluster(), priorities, all).order,
                   context);
}

}  // namespace shunt::graph
