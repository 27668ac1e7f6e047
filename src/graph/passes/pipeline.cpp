#include "graph/passes/pipeline.hpp"

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

}  // namespace shunt::graph
