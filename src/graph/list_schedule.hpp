// List scheduling: whenever a lane is free, the ready task with the highest priority starts. Justification shortens the
// result: everything is scheduled as late as possible, then as early as possible.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/cluster.hpp"
#include "graph/program.hpp"

namespace shunt::graph {

/// Lower ranks go first. Tasks of rank kFiller only fill gaps that no other task can use.
struct Priority {
  static constexpr std::int32_t kFiller = 1 << 20;

  std::int32_t rank = 0;
  double tail_s = 0;  ///< among equal ranks, the task with the longer chain to the end goes first

  [[nodiscard]] bool is_filler() const { return rank >= kFiller; }
};

struct ListSchedule {
  std::vector<TaskId> order;  ///< by start
  std::vector<double> end_s;  ///< by task of the program
  double makespan_s = 0;
};

/// Schedules the tasks of `chosen`; dependencies on other tasks count as satisfied. A filler is held back if it would
/// occupy the compute lane much longer than the running transfer lasts.
ListSchedule list_schedule(const Program& program, const Cluster& cluster, std::span<const Priority> priorities,
                           std::span<const TaskId> chosen);

/// The graph with its tasks in this order, and views and declarations just before their users.
Graph with_order(const Graph& graph, const Program& program, std::span<const TaskId> order);

/// Double justification (Valls, Ballestín and Quintanilla, 2005): the step is scheduled backwards from its end, with
/// tasks that end last first, and then forwards in the resulting order, which moves fillers to where the gaps are.
/// Usually shorter, but not always: the caller compares. Communication with `waits`, by task, starts only while no
/// other is in flight.
ListSchedule justified(const Program& program, const Cluster& cluster, const std::vector<bool>& waits,
                       const ListSchedule& schedule);

}  // namespace shunt::graph
