#include "graph/passes/coverage.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "graph/passes/coverage_bounds.hpp"
#include "support/dice.hpp"

namespace shunt::graph {
namespace {

/// Items that sum up to about the gaps; half of the instances have nested legal gaps, as backward passes do.
CoverageProblem random_problem(std::uint64_t seed, std::int32_t num_gaps, std::int32_t num_items) {
  std::mt19937_64 random(seed);
  shunt::test::Dice dice(random);
  CoverageProblem problem;
  for (std::int32_t gap = 0; gap < num_gaps; ++gap) problem.gaps.push_back(dice.between(50, 150));
  const double total = std::accumulate(problem.gaps.begin(), problem.gaps.end(), 0.0);
  for (std::int32_t item = 0; item < num_items; ++item) {
    problem.items.push_back(total / num_items * dice.between(40, 160) / 100);
    problem.legal.emplace_back();
    const std::int32_t first = dice.between(0, num_gaps - 1);
    for (std::int32_t gap = 0; gap < num_gaps; ++gap)
      if (seed % 2 == 0 ? gap >= first : dice.one_in(2)) problem.legal.back().push_back(gap);
  }
  return problem;
}

double best_by_trying_all(const CoverageProblem& problem, std::vector<std::int32_t>& gap_of, std::size_t item) {
  if (item == problem.items.size()) return covered_seconds(problem, gap_of);
  gap_of[item] = -1;
  double best = best_by_trying_all(problem, gap_of, item + 1);
  for (const std::int32_t gap : problem.legal[item]) {
    gap_of[item] = gap;
    best = std::max(best, best_by_trying_all(problem, gap_of, item + 1));
  }
  return best;
}

void expect_legal(const CoverageProblem& problem, const Coverage& coverage) {
  for (std::size_t item = 0; item < problem.items.size(); ++item)
    if (coverage.gap_of[item] >= 0) {
      EXPECT_TRUE(std::count(problem.legal[item].begin(), problem.legal[item].end(), coverage.gap_of[item]));
    }
  EXPECT_NEAR(coverage.covered_s, covered_seconds(problem, coverage.gap_of), 1e-9);
}

TEST(Coverage, ExactSearchEqualsTryingEverything) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const CoverageProblem problem = random_problem(seed, 4, 7);
    const ExactCoverage exact = cover_exactly(problem, 10);
    std::vector<std::int32_t> gap_of(problem.items.size(), -1);
    ASSERT_TRUE(exact.is_optimal) << seed;
    ASSERT_NEAR(exact.best.covered_s, best_by_trying_all(problem, gap_of, 0), 1e-9) << seed;
    expect_legal(problem, exact.best);
  }
}

constexpr std::uint64_t kInstances = 300;

/// Coverage relative to the bound, over all instances.
struct Shares {
  double sum = 0, worst = 1;
  [[nodiscard]] double mean() const { return sum / kInstances; }
  void add(double share) {
    sum += share;
    worst = std::min(worst, share);
  }
};

TEST(Coverage, ExactSearchLiesBetweenGreedyAndTheBoundByTheDocumentedShares) {
  Shares by_greedy, by_search;
  for (std::uint64_t seed = 0; seed < kInstances; ++seed) {
    const CoverageProblem problem = random_problem(seed, 10, 30);
    const Coverage greedy = cover_greedily(problem);
    const ExactCoverage exact = cover_exactly(problem, 0.01);
    const double bound = std::min(flow_bound(problem), dual_bound(problem, greedy.covered_s, 1'000'000));
    expect_legal(problem, greedy);
    expect_legal(problem, exact.best);
    ASSERT_GE(exact.best.covered_s, greedy.covered_s - 1e-9) << seed;
    ASSERT_LE(exact.best.covered_s, bound + 1e-9) << seed;
    ASSERT_LE(exact.best.covered_s, exact.bound_s + 1e-9) << seed;
    ASSERT_LE(exact.bound_s, flow_bound(problem) + 1e-9) << seed;
    by_greedy.add(greedy.covered_s / exact.bound_s);
    by_search.add(exact.best.covered_s / exact.bound_s);
  }
  // The figures of docs/schedule.md. The search stops at the same point on every machine.
  EXPECT_NEAR(by_greedy.mean(), 0.962, 0.001);
  EXPECT_NEAR(by_greedy.worst, 0.830, 0.001);
  EXPECT_NEAR(by_search.mean(), 0.994, 0.001);
  EXPECT_NEAR(by_search.worst, 0.958, 0.001);
}

TEST(Coverage, OneLongItemFillsOneShortGapOnly) {
  const CoverageProblem problem = {{1, 1, 1, 1}, {9, 1}, {{0, 1, 2, 3}, {0, 1, 2, 3}}};
  EXPECT_DOUBLE_EQ(flow_bound(problem), 4);
  EXPECT_NEAR(dual_bound(problem, 2, 1'000'000), 2, 0.01);
  EXPECT_EQ(cover_exactly(problem, 1).best.covered_s, 2);
}

TEST(Coverage, GreedyPutsTheBestFitIntoEachGap) {
  const CoverageProblem problem = {{10, 4}, {4, 9, 2}, {{0, 1}, {0, 1}, {0}}};
  EXPECT_EQ(cover_greedily(problem).gap_of, (std::vector<std::int32_t>{1, 0, 0}));
}

}  // namespace
}  // namespace shunt::graph
