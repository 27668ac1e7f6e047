#include "graph/passes/range_costs.hpp"

#include <fmt/format.h>

#include "graph/autodiff.hpp"
#include "graph/passes/pipeline.hpp"

namespace shunt::graph {

std::vector<std::int32_t> parts_of_ops(const Graph& graph, const Blocks& blocks, const std::vector<Cut>& cuts) {
  const auto count = static_cast<std::size_t>(blocks.count);
  std::vector<std::int32_t> forward(count, 1), backward(count, 1);
  for (const Cut& cut : cuts)
    for (auto block = static_cast<std::size_t>(cut.begin); block < static_cast<std::size_t>(cut.end); ++block) {
      forward[block] = cut.parts;
      backward[block] = cut.backward == BackwardReach::range ? cut.parts : 1;
    }
  const DimId batch = batch_of(graph);
  const std::vector<bool> is_weight_gradient = weight_gradients(graph);
  std::vector<std::int32_t> parts(graph.ops().size(), 1);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Op& op = graph.op(OpId(i));
    if (op.origin.phase == Phase::update || !is_cut_by_batch(graph, op, batch)) continue;
    if (blocks.plan_of_op[i] >= 0)
      parts[i] = forward[static_cast<std::size_t>(blocks.plan_of_op[i])];
    else if (blocks.of_op[i] >= 0 && !is_weight_gradient[i])
      parts[i] = (op.origin.phase == Phase::forward ? forward : backward)[static_cast<std::size_t>(blocks.of_op[i])];
  }
  return parts;
}

RangeCosts::RangeCosts(const Graph& graph, const Blocks& blocks, const CostModel& cost)
    : graph_(graph), blocks_(blocks), cost_(cost) {
  name_equal_blocks();
}

void RangeCosts::name_equal_blocks() {
  const Variant& whole = variant(1, BackwardReach::range);
  std::map<std::string, std::int32_t> types;
  for (std::int32_t block = 0; block < blocks_.count; ++block) {
    std::string text;
    for (const auto* tasks : {&whole.forward, &whole.backward})
      for (const TaskId task : (*tasks)[static_cast<std::size_t>(block)]) {
        const Task& each = whole.program.tasks[task];
        text += fmt::format("{} {}\n", info(graph_.op(each.op).kind).name, each.cost.alone_s());
      }
    block_type_.push_back(types.emplace(text, static_cast<std::int32_t>(types.size())).first->second);
  }
}

const RangeCosts::Variant& RangeCosts::variant(std::int32_t parts, BackwardReach reach) {
  auto [found, is_new] = variants_.try_emplace({parts, reach});
  Variant& made = found->second;
  if (!is_new) return made;
  const SplitGraph cut = split(graph_, parts_of_ops(graph_, blocks_, {{0, blocks_.count, parts, reach}}));
  made.program = make_program(cut.graph, cost_);
  made.priorities = pipeline_priorities(cut, made.program, 1);
  made.forward.resize(static_cast<std::size_t>(blocks_.count));
  made.backward = made.forward;
  for (TaskId task = 0; task < made.program.tasks.size(); ++task) {
    const OpId source = cut.source[made.program.tasks[task].op.index()];
    const std::int32_t block = blocks_.of_op[source.index()];
    if (block < 0) continue;
    auto& by_block = graph_.op(source).origin.phase == Phase::forward ? made.forward : made.backward;
    by_block[static_cast<std::size_t>(block)].push_back(task);
  }
  return made;
}

std::string RangeCosts::key_of(const Cut& cut) const {
  std::string key = fmt::format("{} {}:", cut.parts, static_cast<int>(cut.backward));
  for (std::int32_t block = cut.begin; block < cut.end; ++block)
    key += fmt::format(" {}", block_type_[static_cast<std::size_t>(block)]);
  return key;
}

double RangeCosts::simulate_range(const Variant& variant, const std::vector<std::vector<TaskId>>& by_block,
                                  const Cut& cut) const {
  std::vector<TaskId> chosen;
  for (std::int32_t block = cut.begin; block < cut.end; ++block) {
    const auto& tasks = by_block[static_cast<std::size_t>(block)];
    chosen.insert(chosen.end(), tasks.begin(), tasks.end());
  }
  return list_schedule(variant.program, cost_.cluster(), variant.priorities, chosen).makespan_s;
}

double RangeCosts::seconds(const Cut& cut) {
  const auto [found, is_new] = known_.try_emplace(key_of(cut));
  if (is_new) {
    const Variant& cut_alike = variant(cut.parts, cut.backward);
    found->second =
        simulate_range(cut_alike, cut_alike.forward, cut) + simulate_range(cut_alike, cut_alike.backward, cut);
  }
  return found->second;
}

}  // namespace shunt::graph
