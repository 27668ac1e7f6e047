// The two lanes of a step: its tasks in the order in which each lane executes them, and what is known to be over when a
// task starts.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "graph/graph.hpp"

namespace shunt::runtime {

/// An op that takes time.
struct LaneTask {
  graph::OpId op;
  graph::Lane lane = graph::Lane::compute;
  std::uint32_t index = 0;  ///< in its lane
  /// What it waits for: this many tasks of the compute lane, and these tasks of the comm lane.
  std::uint32_t computed = 0;
  std::vector<std::uint32_t> transfers;
};

/// The compute lane executes one task after another. The comm lane starts its tasks one after another; several may be
/// in flight, and they end in any order.
class Lanes {
 public:
  explicit Lanes(const graph::Graph& graph);

  [[nodiscard]] const std::vector<LaneTask>& compute() const { return compute_; }
  [[nodiscard]] const std::vector<LaneTask>& comm() const { return comm_; }
  /// By op; null for ops that take no time.
  [[nodiscard]] const LaneTask* task(graph::OpId op) const;

  /// True if `first` has ended whenever `second` starts, on this rank, whatever the speed of the lanes.
  [[nodiscard]] bool ends_before(const LaneTask& first, const LaneTask& second) const;

 private:
  static constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();

  std::vector<LaneTask> compute_, comm_;
  std::vector<std::pair<graph::Lane, std::uint32_t>> task_of_op_;
  std::vector<std::uint32_t> over_for_compute_;   // by transfer: the first compute task that starts after its end
  std::vector<std::vector<bool>> over_for_comm_;  // by transfer: the transfers that have ended when it starts
};

}  // namespace shunt::runtime
