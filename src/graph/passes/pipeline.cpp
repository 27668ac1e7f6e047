#include "graph/passes/pipeline.hpp"

#include <algorithm>
#include <numeric>

#include "graph/autodiff.hpp"

namespace shunt::graph {

std::vector<Priority> pipeline_priorities(const SplitGraph& split, const Program& program, std::int32_t window) {
  const std::vector<double> tails = longest_tails(program);
  const std::vector<bool> is_weight_gradient = weight_gradients(split.graph);
  std::vector<Priority> priorities(program.tasks.size());
  for (TaskId task = 0; task < program.tasks.size(); ++task) {
    const OpId op = program.tasks[task].op;
    const Origin& origin = split.graph.op(op).origin;
    const bool is_reduction = origin.phase == Phase::backward && split.graph.op(op).kind == OpKind::all_reduce;
    priorities[task] = {split.part[op.index()] / window, tails[task]};
    if (is_weight_gradient[op.index()] || is_reduction) priorities[task].rank = Priority::kFiller;
    if (origin.phase == Phase::update) priorities[task].rank = Priority::kFiller + 1;
  }
  return priorities;
}

Pipeline pipelined(const SplitGraph& split, const CostModel& cost, std::int32_t window) {
  const Program program = make_program(split.graph, cost);
  std::vector<TaskId> all(program.tasks.size());
  std::iota(all.begin(), all.end(), TaskId{0});
  const auto priorities = pipeline_priorities(split, program, window);
  Pipeline made{with_order(split.graph, program, list_schedule(program, cost.cluster(), priorities, all).order), {}};
  made.outcome = evaluate(made.graph, cost);
  return made;
}

bool is_better(const Outcome& a, const Outcome& b, std::int64_t memory_cap_bytes) {
  const auto excess = [&](const Outcome& outcome) {
    return memory_cap_bytes == 0 ? 0 : std::max<std::int64_t>(0, outcome.memory.peak_bytes - memory_cap_bytes);
  };
  if (excess(a) != excess(b)) return excess(a) < excess(b);
  return a.timeline.step_s < b.timeline.step_s;
}

}  // namespace shunt::graph
