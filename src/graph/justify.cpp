#include "graph/justify.hpp"

#include <numeric>

namespace shunt::graph {
namespace {

/// Reverses all dependencies.
Program turned_round(const Program& program) {
  Program turned = program;
  for (TaskId task = 0; task < turned.tasks.size(); ++task) {
    turned.tasks[task].needs = program.users[task];
    turned.users[task] = program.tasks[task].needs;
  }
  return turned;
}

/// Tasks that ended last have the highest priority.
std::vector<Priority> last_first(const std::vector<bool>& waits, const std::vector<double>& end_s) {
  std::vector<Priority> priorities;
  for (TaskId task = 0; task < end_s.size(); ++task)
    priorities.push_back({waits[task] ? Priority::kFiller : 0, end_s[task]});
  return priorities;
}

}  // namespace

ListSchedule justified(const Program& program, const Cluster& cluster, const std::vector<bool>& waits,
                       const ListSchedule& schedule) {
  std::vector<TaskId> all(program.tasks.size());
  std::iota(all.begin(), all.end(), TaskId{0});
  const ListSchedule late = list_schedule(turned_round(program), cluster, last_first(waits, schedule.end_s), all);
  return list_schedule(program, cluster, last_first(waits, late.end_s), all);
}

}  // namespace shunt::graph
