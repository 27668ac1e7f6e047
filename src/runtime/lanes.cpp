#include "runtime/lanes.hpp"

#include <algorithm>

#include "graph/program.hpp"

namespace shunt::runtime {
namespace {

using graph::Lane;
using graph::OpId;

void merge(std::vector<bool>& into, const std::vector<bool>& from) {
  for (std::size_t i = 0; i < from.size(); ++i)
    if (from[i]) into[i] = true;
}

}  // namespace

Lanes::Lanes(const graph::Graph& graph) : task_of_op_(graph.ops().size(), {Lane::none, 0}) {
  const std::vector<std::vector<OpId>> needs = graph::tasks_needed(graph);
  std::uint32_t started = 0;  // compute tasks that have ended when the latest transfer starts
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    const Lane lane = graph::lane_of(graph.op(OpId(i)));
    if (lane == Lane::none) continue;
    auto& tasks = lane == Lane::compute ? compute_ : comm_;
    LaneTask task{OpId(i), lane, static_cast<std::uint32_t>(tasks.size()), 0, {}};
    for (const OpId need : needs[i]) {
      const auto& [of, index] = task_of_op_[need.index()];
      if (of == Lane::compute)
        task.computed = std::max(task.computed, index + 1);
      else
        task.transfers.push_back(index);
    }
    if (lane == Lane::compute) task.computed = task.index;
    if (lane == Lane::comm) task.computed = started = std::max(started, task.computed);
    task_of_op_[i] = {lane, task.index};
    tasks.push_back(std::move(task));
  }

  over_for_compute_.assign(comm_.size(), kNever);
  over_for_comm_.assign(comm_.size(), std::vector<bool>(comm_.size()));
  std::vector<bool> over_in_comm(comm_.size());
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    const LaneTask* const each = task(OpId(i));
    if (!each) continue;
    if (each->lane == Lane::compute) {
      for (const std::uint32_t transfer : each->transfers) {
        std::vector<bool> over = over_for_comm_[transfer];
        over[transfer] = true;
        for (std::size_t j = 0; j < over.size(); ++j)
          if (over[j]) over_for_compute_[j] = std::min(over_for_compute_[j], each->index);
      }
    } else {
      for (const std::uint32_t transfer : each->transfers) {
        over_in_comm[transfer] = true;
        merge(over_in_comm, over_for_comm_[transfer]);
      }
      for (std::size_t j = 0; j < over_in_comm.size(); ++j)
        if (over_for_compute_[j] < each->computed) over_in_comm[j] = true;
      over_for_comm_[each->index] = over_in_comm;
    }
  }
}

const LaneTask* Lanes::task(OpId op) const {
  const auto& [lane, index] = task_of_op_[op.index()];
  return lane == Lane::none ? nullptr : lane == Lane::compute ? &compute_[index] : &comm_[index];
}

bool Lanes::ends_before(const LaneTask& first, const LaneTask& second) const {
  if (first.lane == Lane::compute)
    return second.lane == Lane::compute ? first.index < second.index : first.index < second.computed;
  return second.lane == Lane::compute ? over_for_compute_[first.index] <= second.index
                                      : over_for_comm_[second.index][first.index];
}

}  // namespace shunt::runtime
