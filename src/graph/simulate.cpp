#include "graph/simulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/fail.hpp"
#include "graph/machine.hpp"

namespace shunt::graph {
namespace {

/// In-order lanes of one or two ranks: rank 0 has mean load; rank 1, if present, the maximum load.
class Simulation {
 public:
  Simulation(const Program& program, const Cluster& cluster)
      : program_(program), ranks_(has_heavy_rank(program) ? 2 : 1), machine_(cluster, ranks_) {
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      missing_.emplace_back();
      for (const Task& task : program.tasks) missing_.back().push_back(task.needs.size());
    }
    for (TaskId task = 0; task < program.tasks.size(); ++task)
      (program.tasks[task].lane == Lane::comm ? comm_ : compute_).push_back(task);
    next_compute_.assign(ranks_, 0);
    joined_.assign(ranks_, 0);
    timeline_.spans.resize(program.tasks.size());
    timeline_.exposed_by.resize(program.tasks.size());
  }

  Timeline run() {
    start();
    while (!machine_.is_idle()) {
      const bool is_computing = machine_.is_computing(0);
      const std::vector<Machine::Transfer> in_flight = machine_.transfers();
      const bool waits_for_peer = joined_[0] > posted_;
      done_.clear();
      const double passed = machine_.advance(done_);
      account(is_computing, in_flight, waits_for_peer, passed);
      for (const Machine::Done& each : done_) finish(each);
      start();
    }
    SHUNT_CHECK(posted_ == comm_.size() && next_compute_[0] == compute_.size());
    timeline_.step_s = machine_.now();
    return std::move(timeline_);
  }

 private:
  static bool has_heavy_rank(const Program& program) {
    return std::any_of(program.tasks.begin(), program.tasks.end(),
                       [](const Task& task) { return task.cost.heaviest_compute_s > task.cost.compute_s; });
  }

  void account(bool is_computing, const std::vector<Machine::Transfer>& in_flight, bool waits_for_peer, double passed) {
    if (is_computing) timeline_.compute_s += passed;
    if (!in_flight.empty()) timeline_.comm_s += passed;
    const auto moves = [&](double Machine::Transfer::*link) {
      return std::any_of(in_flight.begin(), in_flight.end(),
                         [&](const Machine::Transfer& each) { return each.latency_s <= 0 && each.*link > 0; });
    };
    if (moves(&Machine::Transfer::near_s)) timeline_.near_s += passed;
    if (moves(&Machine::Transfer::far_s)) timeline_.far_s += passed;
    if (is_computing) return;
    const auto all_to_all = std::find_if(in_flight.begin(), in_flight.end(), [&](const Machine::Transfer& each) {
      return program_.tasks[each.task].is_all_to_all;
    });
    if (all_to_all != in_flight.end()) {
      timeline_.exposed_all_to_all_s += passed;
      timeline_.exposed_by[all_to_all->task] += passed;
    } else if (!in_flight.empty()) {
      timeline_.exposed_all_reduce_s += passed;
    } else if (waits_for_peer) {
      timeline_.late_peer_s += passed;
    }
  }

  void start() {
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      std::size_t& next = next_compute_[rank];
      if (!machine_.is_computing(rank) && next < compute_.size() && missing_[rank][compute_[next]] == 0) {
        const TaskId task = compute_[next++];
        const OpCost& cost = program_.tasks[task].cost;
        machine_.start_compute(rank, task, rank == 0 ? cost.compute_s : cost.heaviest_compute_s);
        if (rank == 0) timeline_.spans[task].begin_s = machine_.now();
      }
      while (joined_[rank] < comm_.size() && missing_[rank][comm_[joined_[rank]]] == 0) ++joined_[rank];
    }
    while (machine_.has_free_worker() && posted_ < *std::min_element(joined_.begin(), joined_.end())) {
      const TaskId task = comm_[posted_++];
      machine_.start_comm(task, program_.tasks[task].cost.comm);
      timeline_.spans[task].begin_s = machine_.now();
    }
  }

  void finish(const Machine::Done& done) {
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      if (done.lane == Lane::comm || done.rank == rank)
        for (const TaskId user : program_.users[done.task]) --missing_[rank][user];
    if (done.lane == Lane::comm || done.rank == 0) timeline_.spans[done.task].end_s = machine_.now();
  }

  const Program& program_;
  std::size_t ranks_;
  Machine machine_;
  std::vector<TaskId> compute_, comm_;              // in program order
  std::vector<std::vector<std::size_t>> missing_;   // by rank and task: unfinished dependencies
  std::vector<std::size_t> next_compute_, joined_;  // by rank, indices into compute_ and comm_
  std::size_t posted_ = 0;
  std::vector<Machine::Done> done_;
  Timeline timeline_;
};

/// Starts at the task that ended last and repeatedly goes to the task that ended last before it began: the one that it
/// waited for, unless it waited for a late peer.
std::vector<TaskId> find_critical_path(const Program& program, const Timeline& timeline) {
  std::vector<TaskId> by_end(program.tasks.size());
  for (TaskId task = 0; task < by_end.size(); ++task) by_end[task] = task;
  const auto end = [&](TaskId task) { return timeline.spans[task].end_s; };
  std::sort(by_end.begin(), by_end.end(),
            [&](TaskId a, TaskId b) { return std::pair(end(a), a) < std::pair(end(b), b); });
  std::vector<TaskId> path;
  constexpr double kSame = 1e-12;
  for (std::size_t i = by_end.size(); i-- > 0;)
    if (path.empty() || end(by_end[i]) <= timeline.spans[path.back()].begin_s + kSame) path.push_back(by_end[i]);
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace

Timeline simulate(const Program& program, const Cluster& cluster) {
  Timeline timeline = Simulation(program, cluster).run();
  timeline.critical_path = find_critical_path(program, timeline);
  return timeline;
}

double least_step_s(const Program& program) {
  double compute = 0, near = 0, far = 0, chain = 0;
  for (const Task& task : program.tasks) {
    compute += task.cost.compute_s;
    near += task.cost.comm.near_s;
    far += task.cost.comm.far_s;
  }
  for (const double tail : longest_tails(program)) chain = std::max(chain, tail);
  return std::max({compute, near, far, chain});
}

namespace {

struct Change {
  double at_s;
  std::int64_t bytes;  // at equal times, negative values sort first

  bool operator<(const Change& other) const { return std::pair(at_s, bytes) < std::pair(other.at_s, other.bytes); }
};

}  // namespace

Memory memory_of(const Graph& graph, const Program& program, const Timeline& timeline) {
  std::vector<Timeline::Span> span_of(graph.ops().size());
  for (TaskId task = 0; task < program.tasks.size(); ++task)
    span_of[program.tasks[task].op.index()] = timeline.spans[task];

  // Lifetimes, from the last op back: the base of a view lives as long as the view.
  std::vector<double> dies_at(graph.values().size(), 0);
  for (const ValueId output : graph.outputs) dies_at[output.index()] = timeline.step_s;
  for (std::size_t i = graph.ops().size(); i-- > 0;) {
    const Op& op = graph.op(OpId(i));
    double needed_until = span_of[i].end_s;
    if (info(op.kind).is_view)
      for (const ValueId result : op.results) needed_until = std::max(needed_until, dies_at[result.index()]);
    for (const ValueId operand : op.operands)
      dies_at[operand.index()] = std::max(dies_at[operand.index()], needed_until);
  }

  Memory memory;
  std::vector<Change> changes;
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.op(OpId(i));
    if (info(op.kind).is_view) continue;
    for (const ValueId result : op.results) {
      if (lane_of(op) == Lane::none) {
        memory.fixed_bytes += graph.bytes(result);
        continue;
      }
      changes.push_back({span_of[i].begin_s, graph.bytes(result)});
      changes.push_back({std::max(dies_at[result.index()], span_of[i].end_s), -graph.bytes(result)});
    }
  }
  std::sort(changes.begin(), changes.end());
  std::int64_t live = 0;
  for (const Change& change : changes) {
    live += change.bytes;
    memory.peak_bytes = std::max(memory.peak_bytes, live);
  }
  return memory;
}

namespace {

/// By task: track 0 for compute, and tracks from 1 on for transfers, so that concurrent ones have different tracks.
std::vector<std::size_t> tracks_of(const Program& program, const Timeline& timeline) {
  std::vector<std::size_t> tracks(program.tasks.size());
  std::vector<double> free_from_s;
  for (TaskId task = 0; task < program.tasks.size(); ++task) {
    if (program.tasks[task].lane != Lane::comm) continue;
    const Timeline::Span& span = timeline.spans[task];
    const auto free =
        std::find_if(free_from_s.begin(), free_from_s.end(), [&](double at) { return at <= span.begin_s; });
    tracks[task] = static_cast<std::size_t>(free - free_from_s.begin()) + 1;
    if (free == free_from_s.end())
      free_from_s.push_back(span.end_s);
    else
      *free = span.end_s;
  }
  return tracks;
}

}  // namespace

std::string chrome_trace(const Graph& graph, const Program& program, const Timeline& timeline) {
  constexpr double kMicroseconds = 1e6;
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  const std::vector<std::size_t> tracks = tracks_of(program, timeline);
  const std::size_t last = tracks.empty() ? 0 : *std::max_element(tracks.begin(), tracks.end());
  for (std::size_t track = 0; track <= last; ++track) {
    const std::string name = track == 0 ? "compute" : fmt::format("comm {}", track);
    events.push_back({{"name", "thread_name"}, {"ph", "M"}, {"pid", 0}, {"tid", track}, {"args", {{"name", name}}}});
  }
  for (TaskId i = 0; i < program.tasks.size(); ++i) {
    const Task& task = program.tasks[i];
    const Op& op = graph.op(task.op);
    const std::string name = op.results.empty() ? std::string(info(op.kind).name) : graph.value(op.results[0]).name;
    events.push_back({{"name", name},
                      {"cat", info(op.kind).name},
                      {"ph", "X"},
                      {"pid", 0},
                      {"tid", tracks[i]},
                      {"ts", timeline.spans[i].begin_s * kMicroseconds},
                      {"dur", (timeline.spans[i].end_s - timeline.spans[i].begin_s) * kMicroseconds},
                      {"args", {{"layer", op.origin.layer}, {"phase", to_string(op.origin.phase)}}}});
  }
  return nlohmann::ordered_json({{"traceEvents", events}}).dump(0) + "\n";
}

}  // namespace shunt::graph
