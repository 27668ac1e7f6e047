#include "graph/passes/coverage.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "graph/passes/coverage_bounds.hpp"

namespace shunt::graph {
namespace {

constexpr double kNothing = 1e-12;  // seconds
constexpr double kMostOvershoot = 2;
/// Time is counted in visited pairs of items and gaps, because ranks of different speed must compute the same schedule.
/// A Zen 4 core visits this many per second.
constexpr double kLooksPerSecond = 8.5e7;
constexpr double kShareForBound = 0.5;  // of the time, if the flow does not prove the optimum

bool is_legal(const CoverageProblem& problem, std::size_t item, std::int32_t gap) {
  return std::binary_search(problem.legal[item].begin(), problem.legal[item].end(), gap);
}

/// Moves items one by one while that increases the coverage, or keeps it and fills earlier gaps: more items are legal
/// for later gaps, so holes are better late.
class Improvement {
 public:
  Improvement(const CoverageProblem& problem, Coverage& coverage)
      : problem_(problem), coverage_(coverage), placed_(problem.gaps.size()) {
    for (std::size_t item = 0; item < problem.items.size(); ++item)
      if (coverage.gap_of[item] >= 0) placed_[static_cast<std::size_t>(coverage.gap_of[item])] += problem.items[item];
  }

  void run() {
    constexpr int kMostSweeps = 100;
    for (int sweep = 0; sweep < kMostSweeps && moves_something(); ++sweep) {
    }
    coverage_.covered_s = covered_seconds(problem_, coverage_.gap_of);
  }

 private:
  [[nodiscard]] double covered(std::int32_t gap, double placed) const {
    return std::min(placed, problem_.gaps[static_cast<std::size_t>(gap)]);
  }
  bool moves_something() {
    bool has_moved = false;
    for (std::size_t item = 0; item < problem_.items.size(); ++item)
      for (const std::int32_t gap : problem_.legal[item]) has_moved |= moves(item, gap);
    return has_moved;
  }
  bool moves(std::size_t item, std::int32_t to) {
    const std::int32_t from = coverage_.gap_of[item];
    if (from == to) return false;
    const double length = problem_.items[item];
    double& there = placed_[static_cast<std::size_t>(to)];
    double gain = covered(to, there + length) - covered(to, there);
    if (from >= 0) {
      const double here = placed_[static_cast<std::size_t>(from)];
      gain -= covered(from, here) - covered(from, here - length);
    }
    const bool fills_earlier = from > to && there + length <= problem_.gaps[static_cast<std::size_t>(to)];
    if (gain <= kNothing && !(fills_earlier && gain > -kNothing)) return false;
    if (from >= 0) placed_[static_cast<std::size_t>(from)] -= length;
    there += length;
    coverage_.gap_of[item] = to;
    return true;
  }

  const CoverageProblem& problem_;
  Coverage& coverage_;
  std::vector<double> placed_;
};

class BranchAndBound {
 public:
  BranchAndBound(const CoverageProblem& problem, ExactCoverage& result, double seconds)
      : problem_(problem),
        result_(result),
        left_(problem.gaps),
        gap_of_(problem.items.size(), -1),
        most_visits_(static_cast<std::uint64_t>(seconds * kLooksPerSecond /
                                                static_cast<double>(problem.items.size() + problem.gaps.size() + 1))) {
    order_.resize(problem.items.size());
    std::iota(order_.begin(), order_.end(), 0);
    // Long items first, because they matter most; equal ones are adjacent.
    std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      if (problem.items[a] != problem.items[b]) return problem.items[a] > problem.items[b];
      return problem.legal[a] != problem.legal[b] ? problem.legal[a] < problem.legal[b] : a < b;
    });
  }

  void run() {
    visit(0, 0);
    result_.is_optimal = !is_late_;
    if (result_.is_optimal) result_.bound_s = result_.best.covered_s;
  }

 private:
  void visit(std::size_t depth, double covered) {
    if (covered > result_.best.covered_s + kNothing) result_.best = {gap_of_, covered};
    if (depth == order_.size() || result_.is_proven()) return;
    if (++visits_ > most_visits_) is_late_ = true;
    if (is_late_ || covered + most_from(depth) <= result_.best.covered_s + kNothing) return;
    const std::size_t item = order_[depth];
    for (const std::int32_t gap : promising(item, depth)) {
      const double length = problem_.items[item], free = left_[static_cast<std::size_t>(gap)];
      left_[static_cast<std::size_t>(gap)] = std::max(0.0, free - length);
      gap_of_[item] = gap;
      visit(depth + 1, covered + std::min(free, length));
      left_[static_cast<std::size_t>(gap)] = free;
      gap_of_[item] = -1;
      if (is_late_) return;
    }
    visit(depth + 1, covered);
  }

  /// Gaps where the item covers most; of two equal items, the second never precedes the first.
  std::vector<std::int32_t> promising(std::size_t item, std::size_t depth) const {
    std::int32_t least = 0;
    if (depth > 0) {
      const std::size_t twin = order_[depth - 1];
      if (problem_.items[twin] == problem_.items[item] && problem_.legal[twin] == problem_.legal[item]) {
        if (gap_of_[twin] < 0) return {};
        least = gap_of_[twin];
      }
    }
    std::vector<std::int32_t> gaps;
    for (const std::int32_t gap : problem_.legal[item])
      if (gap >= least && left_[static_cast<std::size_t>(gap)] > kNothing) gaps.push_back(gap);
    const auto waste = [&](std::int32_t gap) {
      return std::abs(left_[static_cast<std::size_t>(gap)] - problem_.items[item]);
    };
    std::stable_sort(gaps.begin(), gaps.end(), [&](std::int32_t a, std::int32_t b) { return waste(a) < waste(b); });
    return gaps;
  }

  /// Upper bound for the items from `depth` on, as if each could be divided and could fill any gap from its first legal
  /// one on.
  double most_from(std::size_t depth) const {
    std::vector<double> arrives(left_.size());
    for (std::size_t i = depth; i < order_.size(); ++i)
      if (!problem_.legal[order_[i]].empty())
        arrives[static_cast<std::size_t>(problem_.legal[order_[i]].front())] += problem_.items[order_[i]];
    double pool = 0, covered = 0;
    for (std::size_t gap = 0; gap < left_.size(); ++gap) {
      pool += arrives[gap];
      const double used = std::min(pool, left_[gap]);
      covered += used;
      pool -= used;
    }
    return covered;
  }

  const CoverageProblem& problem_;
  ExactCoverage& result_;
  std::vector<double> left_;
  std::vector<std::int32_t> gap_of_;
  std::vector<std::size_t> order_;
  std::uint64_t most_visits_, visits_ = 0;
  bool is_late_ = false;
};

}  // namespace

double covered_seconds(const CoverageProblem& problem, const std::vector<std::int32_t>& gap_of) {
  std::vector<double> placed(problem.gaps.size());
  for (std::size_t item = 0; item < gap_of.size(); ++item)
    if (gap_of[item] >= 0) placed[static_cast<std::size_t>(gap_of[item])] += problem.items[item];
  double covered = 0;
  for (std::size_t gap = 0; gap < placed.size(); ++gap) covered += std::min(placed[gap], problem.gaps[gap]);
  return covered;
}

Coverage cover_greedily(const CoverageProblem& problem) {
  Coverage coverage{std::vector<std::int32_t>(problem.items.size(), -1), 0};
  for (std::int32_t gap = 0; gap < static_cast<std::int32_t>(problem.gaps.size()); ++gap) {
    double rest = problem.gaps[static_cast<std::size_t>(gap)];
    bool is_empty = true;
    while (rest > kNothing) {
      std::size_t best = problem.items.size();
      for (std::size_t item = 0; item < problem.items.size(); ++item)
        if (coverage.gap_of[item] < 0 && is_legal(problem, item, gap) &&
            (best == problem.items.size() ||
             std::abs(problem.items[item] - rest) < std::abs(problem.items[best] - rest)))
          best = item;
      if (best == problem.items.size() || (!is_empty && problem.items[best] > kMostOvershoot * rest)) break;
      coverage.gap_of[best] = gap;
      rest -= problem.items[best];
      is_empty = false;
    }
  }
  coverage.covered_s = covered_seconds(problem, coverage.gap_of);
  return coverage;
}

ExactCoverage cover_exactly(const CoverageProblem& problem, double seconds) {
  ExactCoverage result{cover_greedily(problem), flow_bound(problem), false};
  Improvement(problem, result.best).run();
  if (!result.is_proven())
    result.bound_s =
        std::min(result.bound_s, dual_bound(problem, result.best.covered_s,
                                            static_cast<std::uint64_t>(kShareForBound * seconds * kLooksPerSecond)));
  BranchAndBound(problem, result, (1 - kShareForBound) * seconds).run();
  return result;
}

}  // namespace shunt::graph
