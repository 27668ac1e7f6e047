#include "graph/passes/passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "graph/autodiff.hpp"
#include "graph/list_schedule.hpp"
#include "graph/passes/columns.hpp"
#include "graph/passes/coverage.hpp"
#include "graph/passes/pipeline.hpp"

namespace shunt::graph {
namespace {

/// The step without weight gradients, in its order, and the legal positions of each weight gradient.
class Placement {
 public:
  Placement(const Graph& graph, const CostModel& cost)
      : graph_(graph), program_(make_program(graph, cost)), cost_(cost) {
    const std::vector<bool> is_weight_gradient = weight_gradients(graph);
    std::vector<std::size_t> ready(program_.tasks.size());  // position in rest_ after which a task's operands exist
    for (TaskId task = 0; task < program_.tasks.size(); ++task) {
      for (const TaskId need : program_.tasks[task].needs) ready[task] = std::max(ready[task], end_of(need, ready));
      const Op& op = graph.op(program_.tasks[task].op);
      const bool is_late = is_weight_gradient[program_.tasks[task].op.index()];
      const auto& needs = program_.tasks[task].needs;
      const bool sums_parts =
          is_late && std::any_of(needs.begin(), needs.end(), [&](TaskId need) { return is_moved_[need]; });
      const bool follows = sums_parts || op.origin.phase == Phase::update || reduces_gradient(op);
      if (is_late && !sums_parts) {
        is_moved_.push_back(true);
        moved_.push_back(task);
        ready_.push_back(ready[task]);
      } else if (follows) {
        is_moved_.push_back(true);
        followers_.push_back(task);
      } else {
        is_moved_.push_back(false);
        rest_.push_back(task);
        position_.resize(task + 1);
        position_[task] = rest_.size();
      }
    }
  }

  [[nodiscard]] CoverageProblem problem() {
    const std::vector<double> exposed_by = exposed_without_weight_gradients();
    CoverageProblem problem;
    for (std::size_t i = 0; i < rest_.size(); ++i) {
      const double exposed = exposed_by[rest_[i]];
      if (exposed <= 0) continue;
      gaps_.push_back(i);
      problem.gaps.push_back(exposed);
    }
    for (std::size_t item = 0; item < moved_.size(); ++item) {
      problem.items.push_back(program_.tasks[moved_[item]].cost.compute_s * cost_.cluster().compute_slowdown);
      problem.legal.emplace_back();
      for (std::size_t gap = 0; gap < gaps_.size(); ++gap)
        if (gaps_[gap] >= ready_[item]) problem.legal.back().push_back(static_cast<std::int32_t>(gap));
    }
    return problem;
  }

  /// By layer: the weight gradients placed behind its all-to-alls.
  [[nodiscard]] std::vector<LayerNote> notes(const CoverageProblem& problem, const Coverage& coverage) const {
    std::map<std::int32_t, std::pair<double, double>> by_layer;  // exposed before, placed
    std::vector<double> placed(problem.gaps.size());
    for (std::size_t item = 0; item < coverage.gap_of.size(); ++item)
      if (coverage.gap_of[item] >= 0) placed[static_cast<std::size_t>(coverage.gap_of[item])] += problem.items[item];
    for (std::size_t gap = 0; gap < gaps_.size(); ++gap) {
      auto& [exposed, behind] = by_layer[graph_.op(program_.tasks[rest_[gaps_[gap]]].op).origin.layer];
      exposed += problem.gaps[gap];
      behind += placed[gap];
    }
    std::vector<LayerNote> notes;
    for (const auto& [layer, seconds] : by_layer)
      if (seconds.second > 0)
        notes.push_back({layer, fmt::format("{:.2f} ms of weight gradients behind all-to-alls that exposed {:.2f}",
                                            seconds.second * 1e3, seconds.first * 1e3)});
    return notes;
  }

  /// The same without compaction.
  [[nodiscard]] Graph place_only(const std::vector<std::int32_t>& gap_of) const {
    return with_order(graph_, program_, order_with(gap_of, false));
  }

  /// Weight gradients without a gap go to the end, or to where they become ready.
  [[nodiscard]] Ordered place(const std::vector<std::int32_t>& gap_of, bool at_end, const PassContext& context) const {
    return compacted(graph_, program_, order_with(gap_of, at_end), context);
  }

 private:
  std::size_t end_of(TaskId need, const std::vector<std::size_t>& ready) const {
    return is_moved_[need] ? ready[need] : position_[need];
  }

  /// By task: the exposed time of an all-to-all while every weight gradient waits until the end.
  [[nodiscard]] std::vector<double> exposed_without_weight_gradients() const {
    const std::vector<TaskId> order = order_with(std::vector<std::int32_t>(moved_.size(), -1), true);
    const Timeline timeline = simulate(program_.reordered(order), cost_.cluster());
    std::vector<double> exposed(order.size());
    for (TaskId i = 0; i < order.size(); ++i) exposed[order[i]] = timeline.exposed_by[i];
    return exposed;
  }

  /// Sums of parts, reductions and updates follow their dependencies.
  std::vector<TaskId> order_with(const std::vector<std::int32_t>& gap_of, bool at_end) const {
    std::vector<std::vector<TaskId>> behind(rest_.size() + 1);  // by position in rest_
    for (std::size_t item = 0; item < moved_.size(); ++item) {
      const std::size_t at = gap_of[item] >= 0 ? gaps_[static_cast<std::size_t>(gap_of[item])] + 1
                             : at_end          ? rest_.size()
                                               : ready_[item];
      behind[at].push_back(moved_[item]);
    }
    std::vector<TaskId> order = behind[0];
    for (std::size_t i = 0; i < rest_.size(); ++i) {
      order.push_back(rest_[i]);
      order.insert(order.end(), behind[i + 1].begin(), behind[i + 1].end());
    }
    return with_followers(order);
  }

  std::vector<TaskId> with_followers(const std::vector<TaskId>& order) const {
    std::vector<std::size_t> at(program_.tasks.size());
    for (std::size_t i = 0; i < order.size(); ++i) at[order[i]] = i;
    std::vector<std::vector<TaskId>> behind(order.size());
    std::vector<TaskId> updates;
    for (const TaskId task : followers_) {
      if (graph_.op(program_.tasks[task].op).origin.phase == Phase::update) {
        updates.push_back(task);
        continue;
      }
      std::size_t last = 0;
      for (const TaskId need : program_.tasks[task].needs) last = std::max(last, at[need]);
      behind[last].push_back(task);
      at[task] = last;
    }
    std::vector<TaskId> all;
    for (std::size_t i = 0; i < order.size(); ++i) {
      all.push_back(order[i]);
      all.insert(all.end(), behind[i].begin(), behind[i].end());
    }
    all.insert(all.end(), updates.begin(), updates.end());
    return all;
  }

  const Graph& graph_;
  Program program_;
  const CostModel& cost_;
  std::vector<bool> is_moved_;
  std::vector<TaskId> rest_, moved_, followers_;
  std::vector<std::size_t> position_;  // by task of rest_: 1 + its position there
  std::vector<std::size_t> ready_;     // by moved task
  std::vector<std::size_t> gaps_;      // positions in rest_
};

}  // namespace

namespace {

struct Placed {
  Ordered step;
  double gap, gained;
  std::vector<LayerNote> notes;
};

Placed place_weight_gradients(const Graph& graph, const PassContext& context, double seconds) {
  Placement placement(graph, context.cost);
  const CoverageProblem problem = placement.problem();
  const Coverage greedy = cover_greedily(problem);
  const ExactCoverage exact = cover_exactly(problem, seconds);
  Ordered late = placement.place(exact.best.gap_of, true, context);
  Ordered early = placement.place(exact.best.gap_of, false, context);
  const bool is_late = is_better(late.outcome, early.outcome, context.memory_cap_bytes);
  return {is_late ? std::move(late) : std::move(early), exact.gap(),
          exact.bound_s > 0 ? (exact.best.covered_s - greedy.covered_s) / exact.bound_s : 0,
          placement.notes(problem, exact.best)};
}

constexpr double kPiecesPerGap = 3;

/// The median of the gaps that are longer than a mere latency.
double typical_gap(const Graph& graph, const PassContext& context) {
  std::vector<double> gaps = Placement(graph, context.cost).problem().gaps;
  std::erase_if(gaps, [&](double gap) { return gap <= 2 * context.cost.cluster().all_to_all_s; });
  if (gaps.empty()) return 0;
  std::nth_element(gaps.begin(), gaps.begin() + static_cast<std::ptrdiff_t>(gaps.size() / 2), gaps.end());
  return gaps[gaps.size() / 2];
}

}  // namespace

Graph schedule_weight_gradients(const Graph& graph, PassContext& context) {
  const double seconds = context.dw_seconds / 2;
  Placed best = place_weight_gradients(graph, context, seconds);
  // A long weight gradient overfills one gap; in pieces it fills several.
  if (const double gap = typical_gap(graph, context); gap > 0) {
    const Graph pieces = cut_columns(graph, pieces_for(graph, context.cost, gap / kPiecesPerGap));
    Placed cut = place_weight_gradients(pieces, context, seconds);
    if (is_better(cut.step.outcome, best.step.outcome, context.memory_cap_bytes)) best = std::move(cut);
  }
  context.notes.insert(context.notes.end(), best.notes.begin(), best.notes.end());
  context.dw_gap = best.gap;
  context.dw_gained = best.gained;
  return std::move(best.step.graph);
}

Graph place_weight_gradients_greedily(const Graph& graph, const PassContext& context) {
  Placement placement(graph, context.cost);
  return placement.place_only(cover_greedily(placement.problem()).gap_of);
}

}  // namespace shunt::graph
