// Assigns work to gaps that it hides: each item may fill one of its legal gaps.
#pragma once

#include <cstdint>
#include <vector>

namespace shunt::graph {

/// Maximise the sum over gaps of min(gap, items assigned to it).
struct CoverageProblem {
  std::vector<double> gaps;                      ///< seconds, in launch order
  std::vector<double> items;                     ///< seconds, in program order
  std::vector<std::vector<std::int32_t>> legal;  ///< by item: gaps, ascending
};

struct Coverage {
  std::vector<std::int32_t> gap_of;  ///< by item; −1: not assigned
  double covered_s = 0;
};

double covered_seconds(const CoverageProblem& problem, const std::vector<std::int32_t>& gap_of);

/// Lancet's best fit (section 4.2): gap by gap, the item whose length is nearest to the remaining time.
Coverage cover_greedily(const CoverageProblem& problem);

struct ExactCoverage {
  Coverage best;
  double bound_s = 0;  ///< proven upper bound
  bool is_optimal = false;

  [[nodiscard]] bool is_proven() const { return best.covered_s >= bound_s - 1e-12; }
  /// Distance to the bound, relative to the bound.
  [[nodiscard]] double gap() const { return bound_s > 0 ? (bound_s - best.covered_s) / bound_s : 0; }
};

/// Branch and bound from the greedy solution, which is first improved item by item; items with equal lengths and legal
/// gaps are treated as one. The bound is the lower one of coverage_bounds.hpp. Stops after about `seconds`, at the same
/// point on every machine, with what is proven so far.
ExactCoverage cover_exactly(const CoverageProblem& problem, double seconds);

}  // namespace shunt::graph
