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

}  // namespace shunt::graph
