#include "graph/program.hpp"

#include <algorithm>

namespace shunt::graph {

void Program::find_users() {
  users.assign(tasks.size(), {});
  for (TaskId task = 0; task < tasks.size(); ++task)
    for (const TaskId need : tasks[task].needs) users[need].push_back(task);
}

Program Program::reordered(std::span<const TaskId> order) const {
  std::vector<TaskId> place(order.size());
  for (TaskId i = 0; i < order.size(); ++i) place[order[i]] = i;
  Program result;
  result.tasks.reserve(order.size());
  for (const TaskId task : order) {
    result.tasks.push_back(tasks[task]);
    for (TaskId& need : result.tasks.back().needs) need = place[need];
  }
  result.find_users();
  return result;
}

Program make_program(const Graph& graph, const CostModel& cost) {
  const std::vector<std::vector<OpId>> needs = tasks_needed(graph);
  Program program;
  std::vector<TaskId> task_of_op(graph.ops().size());
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.op(OpId(i));
    if (lane_of(op) == Lane::none) continue;
    task_of_op[i] = static_cast<TaskId>(program.tasks.size());
    Task& task = program.tasks.emplace_back(
        Task{OpId(i), lane_of(op), is_all_to_all(op) || op.kind == OpKind::plan, cost.of(graph, op), {}});
    for (const OpId need : needs[i]) task.needs.push_back(task_of_op[need.index()]);
  }
  program.find_users();
  return program;
}

std::vector<double> longest_tails(const Program& program) {
  std::vector<double> tails(program.tasks.size());
  for (std::size_t i = program.tasks.size(); i-- > 0;) {
    for (const TaskId user : program.users[i]) tails[i] = std::max(tails[i], tails[user]);
    tails[i] += program.tasks[i].cost.alone_s();
  }
  return tails;
}

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

std::vector<std::vector<OpId>> tasks_needed(const Graph& graph) {
  const std::vector<std::vector<OpId>> waits = dependencies(graph);
  std::vector<std::vector<OpId>> needs(graph.ops().size());
  std::vector<std::vector<OpId>> reached_by(graph.ops().size());  // by op: the tasks that its users depend on
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    std::vector<OpId> all;
    for (const OpId wait : waits[i])
      all.insert(all.end(), reached_by[wait.index()].begin(), reached_by[wait.index()].end());
    std::ranges::sort(all);
    all.erase(std::unique(all.begin(), all.end()), all.end());
    if (lane_of(graph.op(OpId(i))) == Lane::none) {
      reached_by[i] = std::move(all);
    } else {
      reached_by[i] = {OpId(i)};
      needs[i] = std::move(all);
    }
  }
  return needs;
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
