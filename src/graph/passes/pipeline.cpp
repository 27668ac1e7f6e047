#include "graph/passes/pipeline.hpp"

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
