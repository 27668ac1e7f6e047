// A graph reduced to its tasks, the ops that take time, and their dependencies; and orders of ops.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/cost.hpp"
#include "graph/graph.hpp"

namespace shunt::graph {

using TaskId = std::uint32_t;

struct Task {
  OpId op;
  Lane lane = Lane::compute;
  bool is_all_to_all = false;  ///< or the exchange of counts before one; other communication is an all-reduce
  OpCost cost;
  std::vector<TaskId> needs;
};

/// Tasks are in program order.
struct Program {
  std::vector<Task> tasks;
  std::vector<std::vector<TaskId>> users;  ///< by task

  void find_users();
  /// The same tasks in another order, renumbered.
  [[nodiscard]] Program reordered(std::span<const TaskId> order) const;
};

Program make_program(const Graph& graph, const CostModel& cost);

/// By task: the length of the longest chain from its start to the end, with each op on its own.
std::vector<double> longest_tails(const Program& program);

/// By op, ascending, without duplicates: the ops that must end before it may start, which are the producers of its
/// operands and every reader of what it overwrites, also through views.
std::vector<std::vector<OpId>> dependencies(const Graph& graph);

/// By op: the ops that take time on which it depends, also through views; empty for ops that take none.
std::vector<std::vector<OpId>> tasks_needed(const Graph& graph);

/// Places each op as early as its dependencies permit, updates last; so an all-reduce directly follows its gradient.
Graph in_program_order(const Graph& graph);

}  // namespace shunt::graph
