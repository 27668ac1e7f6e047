#include "graph/list_schedule.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <queue>

#include "core/fail.hpp"
#include "graph/machine.hpp"
#include "graph/program.hpp"

namespace shunt::graph {
namespace {

/// A filler may outlast the transfer that it hides by this factor; Lancet's greedy (section 4.2) stops at 2.
constexpr double kMostOvershoot = 1.5;

class ListScheduler {
 public:
  ListScheduler(const Program& program, const Cluster& cluster, std::span<const Priority> priorities,
                std::span<const TaskId> chosen)
      : program_(program), priorities_(priorities), machine_(cluster, 1), missing_(program.tasks.size(), kOutside) {
    for (const TaskId task : chosen) missing_[task] = 0;
    for (const TaskId task : chosen)
      for (const TaskId need : program.tasks[task].needs) missing_[task] += missing_[need] != kOutside;
    for (const TaskId task : chosen)
      if (missing_[task] == 0) make_ready(task);
    left_ = chosen.size();
    schedule_.end_s.resize(program.tasks.size());
  }

  ListSchedule run() {
    std::vector<Machine::Done> done;
    start();
    while (left_ > 0) {
      SHUNT_CHECK(!machine_.is_idle());
      done.clear();
      machine_.advance(done);
      for (const Machine::Done& each : done) finish(each.task);
      start();
    }
    schedule_.makespan_s = machine_.now();
    return std::move(schedule_);
  }

 private:
  static constexpr std::uint32_t kOutside = std::numeric_limits<std::uint32_t>::max();

  struct Later {
    const ListScheduler* scheduler;
    bool operator()(TaskId a, TaskId b) const {
      const Priority &x = scheduler->priorities_[a], &y = scheduler->priorities_[b];
      if (x.rank != y.rank) return x.rank > y.rank;
      if (x.tail_s != y.tail_s) return x.tail_s < y.tail_s;
      return a > b;
    }
  };
  using Queue = std::priority_queue<TaskId, std::vector<TaskId>, Later>;

  void make_ready(TaskId task) {
    if (program_.tasks[task].lane == Lane::comm)
      comm_.push(task);
    else if (priorities_[task].is_filler())
      fillers_.push_back(task);
    else
      compute_.push(task);
  }

  void finish(TaskId task) {
    --left_;
    schedule_.end_s[task] = machine_.now();
    for (const TaskId user : program_.users[task])
      if (missing_[user] != kOutside && --missing_[user] == 0) make_ready(user);
  }

  void start() {
    // Reductions wait while an all-to-all could use the links.
    while (machine_.has_free_worker() && !comm_.empty()) {
      const TaskId task = comm_.top();
      if (priorities_[task].is_filler() && !machine_.transfers().empty()) break;
      comm_.pop();
      machine_.start_comm(task, program_.tasks[task].cost.comm);
      schedule_.order.push_back(task);
    }
    if (machine_.is_computing(0)) return;
    if (!compute_.empty()) {
      compute(compute_.top());
      compute_.pop();
    } else if (!fillers_.empty()) {
      fill();
    }
  }

  void compute(TaskId task) {
    machine_.start_compute(0, task, program_.tasks[task].cost.compute_s);
    schedule_.order.push_back(task);
  }

  /// Starts the longest filler that is no longer than the shortest running transfer; if all are longer, the shortest.
  void fill() {
    double gap = std::numeric_limits<double>::infinity();
    for (const Machine::Transfer& each : machine_.transfers())
      if (!priorities_[each.task].is_filler()) gap = std::min(gap, each.latency_s + std::max(each.near_s, each.far_s));
    const bool is_hiding = gap != std::numeric_limits<double>::infinity();
    const auto better = [&](TaskId a, TaskId b) {
      if (!is_hiding) return Later{this}(b, a);
      const double x = program_.tasks[a].cost.compute_s, y = program_.tasks[b].cost.compute_s;
      if ((x <= gap) != (y <= gap)) return x <= gap;
      return x <= gap ? x > y : x < y;
    };
    const auto best = std::min_element(fillers_.begin(), fillers_.end(), better);
    if (is_hiding && program_.tasks[*best].cost.compute_s > kMostOvershoot * gap) return;
    const TaskId task = *best;
    fillers_.erase(best);
    compute(task);
  }

  const Program& program_;
  std::span<const Priority> priorities_;
  Machine machine_;
  std::vector<std::uint32_t> missing_;  // by task: unfinished dependencies among the chosen tasks
  Queue compute_{Later{this}}, comm_{Later{this}};
  std::vector<TaskId> fillers_;
  std::size_t left_ = 0;
  ListSchedule schedule_;
};

}  // namespace

ListSchedule list_schedule(const Program& program, const Cluster& cluster, std::span<const Priority> priorities,
                           std::span<const TaskId> chosen) {
  return ListScheduler(program, cluster, priorities, chosen).run();
}

Graph with_order(const Graph& graph, const Program& program, std::span<const TaskId> order) {
  const std::vector<std::vector<OpId>> needs = dependencies(graph);
  std::vector<bool> is_placed(graph.ops().size());
  std::vector<OpId> ops;
  const auto place = [&](const auto& self, OpId op) -> void {
    if (is_placed[op.index()]) return;
    is_placed[op.index()] = true;
    for (const OpId need : needs[op.index()])
      if (lane_of(graph.op(need)) == Lane::none) self(self, need);
    ops.push_back(op);
  };
  for (const TaskId task : order) place(place, program.tasks[task].op);
  for (std::size_t i = 0; i < graph.ops().size(); ++i) place(place, OpId(i));
  return graph.reordered(ops);
}

namespace {

/// Reverses all dependencies.
Program reversed(const Program& program) {
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
  const ListSchedule late = list_schedule(reversed(program), cluster, last_first(waits, schedule.end_s), all);
  return list_schedule(program, cluster, last_first(waits, late.end_s), all);
}

}  // namespace shunt::graph
