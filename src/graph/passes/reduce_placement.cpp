#include "graph/passes/passes.hpp"

#include <algorithm>

#include "graph/list_schedule.hpp"
#include "graph/passes/pipeline.hpp"

namespace shunt::graph {
namespace {

struct Gap {
  std::size_t before;  // position of the communication that ends the gap
  double begin_s, left_s;
};

class Reductions {
 public:
  Reductions(const Graph& graph, const CostModel& cost)
      : graph_(graph), program_(make_program(graph, cost)), timeline_(simulate(program_, cost.cluster())) {
    std::vector<bool> is_moved(program_.tasks.size());
    for (TaskId task = 0; task < program_.tasks.size(); ++task) {
      const Op& op = graph.op(program_.tasks[task].op);
      const auto& needs = program_.tasks[task].needs;
      const bool follows = std::any_of(needs.begin(), needs.end(), [&](TaskId need) { return is_moved[need]; });
      const bool is_reduction = reduces_gradient(op);
      const bool is_update = op.origin.phase == Phase::update && program_.tasks[task].lane == Lane::compute;
      is_moved[task] = is_reduction || is_update || follows;
      (is_update || follows ? last_ : is_reduction ? reductions_ : rest_).push_back(task);
    }
  }

  [[nodiscard]] Graph behind_all_to_alls() const {
    std::size_t last = 0;
    for (std::size_t i = 0; i < rest_.size(); ++i)
      if (program_.tasks[rest_[i]].is_all_to_all) last = i + 1;
    return ordered([&](TaskId task) { return std::max(last, ready_place(task)); });
  }

  [[nodiscard]] Graph in_gaps() const {
    std::vector<Gap> gaps = find_gaps();
    return ordered([&](TaskId task) {
      const double length = program_.tasks[task].cost.comm.alone_s();
      const std::size_t earliest = ready_place(task);
      for (Gap& gap : gaps)
        if (gap.before >= earliest && gap.left_s >= length && gap.begin_s + gap.left_s >= ready_s(task) + length) {
          gap.left_s -= length;
          return gap.before;
        }
      return rest_.size();
    });
  }

 private:
  [[nodiscard]] double ready_s(TaskId task) const {
    double ready = 0;
    for (const TaskId need : program_.tasks[task].needs) ready = std::max(ready, timeline_.spans[need].end_s);
    return ready;
  }
  /// The position in rest_ after everything that the reduction depends on.
  [[nodiscard]] std::size_t ready_place(TaskId task) const {
    std::size_t place = 0;
    for (const TaskId need : program_.tasks[task].needs) {
      const auto at = std::lower_bound(rest_.begin(), rest_.end(), need) - rest_.begin();
      place = std::max(place, static_cast<std::size_t>(at) + 1);
    }
    return place;
  }

  /// Gaps of the links between transfers that are not reductions.
  [[nodiscard]] std::vector<Gap> find_gaps() const {
    std::vector<Gap> gaps;
    double idle_from = 0;
    for (std::size_t i = 0; i < rest_.size(); ++i) {
      if (program_.tasks[rest_[i]].lane != Lane::comm) continue;
      const Timeline::Span& span = timeline_.spans[rest_[i]];
      if (span.begin_s > idle_from) gaps.push_back({i, idle_from, span.begin_s - idle_from});
      idle_from = std::max(idle_from, span.end_s);
    }
    return gaps;
  }

  template <class Place>
  [[nodiscard]] Graph ordered(const Place& place) const {
    std::vector<std::vector<TaskId>> before(rest_.size() + 1);
    for (const TaskId task : reductions_) before[place(task)].push_back(task);
    std::vector<TaskId> order;
    for (std::size_t i = 0; i <= rest_.size(); ++i) {
      order.insert(order.end(), before[i].begin(), before[i].end());
      if (i < rest_.size()) order.push_back(rest_[i]);
    }
    order.insert(order.end(), last_.begin(), last_.end());
    return with_order(graph_, program_, order);
  }

  const Graph& graph_;
  Program program_;
  Timeline timeline_;
  std::vector<TaskId> reductions_, rest_;
  std::vector<TaskId> last_;  // updates, and users of reduced gradients before them
};

}  // namespace

Graph place_reductions(const Graph& graph, PassContext& context) {
  const Reductions reductions(graph, context.cost);
  Ordered best{graph, evaluate(graph, context.cost)};
  for (Graph& candidate : std::vector{reductions.behind_all_to_alls(), reductions.in_gaps()}) {
    Outcome outcome = evaluate(candidate, context.cost);
    if (is_better(outcome, best.outcome, context.memory_cap_bytes)) best = {std::move(candidate), std::move(outcome)};
  }
  return std::move(best.graph);
}

}  // namespace shunt::graph
