// Orders tasks by letting a machine pick, whenever a lane is free, the best of those that are ready.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/cluster.hpp"
#include "graph/program.hpp"

namespace shunt::graph {

/// The smaller goes first. Tasks of rank kFiller only fill gaps that nothing else could use.
struct Priority {
  static constexpr std::int32_t kFiller = 1 << 20;

  std::int32_t rank = 0;
  double tail_s = 0;  ///< of equal rank the one with the longer way to the end goes first

  [[nodiscard]] bool is_filler() const { return rank >= kFiller; }
};

struct ListSchedule {
  std::vector<TaskId> order;  ///< by start
  std::vector<double> end_s;  ///< by task of the program
  double makespan_s = 0;
};

/// Tasks of `chosen` only; what they need of others counts as there. Fillers that would delay the compute lane much
/// longer than the running transfer lasts are held back for a better one.
ListSchedule list_schedule(const Program& program, const Cluster& cluster, std::span<const Priority> priorities,
                           std::span<const TaskId> chosen);

/// The graph with its tasks in this order, and views and declarations just before who needs them.
Graph with_order(const Graph& graph, const Program& program, std::span<const TaskId> order);

}  // namespace shunt::graph
