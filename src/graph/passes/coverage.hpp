// Which work hides which gap: each item may fill one of the gaps that are legal for it.
#pragma once

#include <cstdint>
#include <vector>

namespace shunt::graph {

/// Maximise the sum over gaps of min(gap, items placed there).
struct CoverageProblem {
  std::vector<double> gaps;                      ///< seconds, in launch order
  std::vector<double> items;                     ///< seconds, in program order
  std::vector<std::vector<std::int32_t>> legal;  ///< by item: gaps, ascending
};

struct Coverage {
  std::vector<std::int32_t> gap_of;  ///< by item; −1: hides nothing
  double covered_s = 0;
};

double covered_seconds(const CoverageProblem& problem, const std::vector<std::int32_t>& gap_of);

/// Lancet's best fit (section 4.2): gap by gap, the item whose length is nearest to what is left.
Coverage cover_greedily(const CoverageProblem& problem);

struct ExactCoverage {
  Coverage best;
  double bound_s = 0;  ///< proven
  bool is_optimal = false;

  [[nodiscard]] bool is_proven() const { return best.covered_s >= bound_s - 1e-12; }
  /// Relative to the bound.
  [[nodiscard]] double gap() const { return bound_s > 0 ? (bound_s - best.covered_s) / bound_s : 0; }
};

/// Branch and bound from the greedy solution, improved item by item; items of equal length and equal legal gaps are
/// one. The bound is the lower of coverage_bounds.hpp. Stops after about `seconds`, at the same place on every machine,
/// with what it has proven until then.
ExactCoverage cover_exactly(const CoverageProblem& problem, double seconds);

}  // namespace shunt::graph
