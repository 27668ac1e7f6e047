// Local search for the group of each expert: swaps whose effect on every token of a sample is known exactly.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "placement/random.hpp"
#include "placement/routed_tokens.hpp"

namespace shunt::placement {

/// What is minimised: sums and maxima of how many tokens touch ranks and nodes, weighted.
struct Objective {
  double rank_sum = 1;
  double node_sum = 0;
  double rank_most = 0;  ///< of the busiest rank; the larger of this term and the next counts
  double node_most = 0;  ///< of the busiest node
};

/// Where experts may go: `num_items` places, evenly over ranks. Items from the number of experts on are vacancies, at
/// most one on a rank, so that ranks differ by one expert at most.
struct PartitionProblem {
  const RoutedTokens& sample;
  std::vector<double> load;        ///< [experts]: an expert's share of all rows
  std::vector<std::int32_t> node;  ///< [ranks]
  Objective objective;
  double most_load;  ///< of a rank, as a share of all rows
  /// [experts]: where they are now, and how many may leave; empty: they are nowhere yet.
  std::vector<std::int32_t> home = {};
  std::int64_t most_moves = 0;

  [[nodiscard]] std::size_t num_experts() const { return load.size(); }
  [[nodiscard]] std::size_t num_ranks() const { return node.size(); }
  [[nodiscard]] std::size_t num_items() const { return (num_experts() + num_ranks() - 1) / num_ranks() * num_ranks(); }
  /// Loads of the ranks of an assignment.
  [[nodiscard]] std::vector<double> rank_loads(std::span<const std::int32_t> rank_of) const;
};

struct Partition {
  std::vector<std::int32_t> rank_of;  ///< [items]
  double value = 0;                   ///< of the objective, on the sample
};

/// Appends a vacancy for each rank that has one expert less than others. rank_of: [experts], counts that differ by at
/// most one.
std::vector<std::int32_t> with_vacancies(std::span<const std::int32_t> rank_of, std::size_t num_ranks);

/// Tabu search: each step makes the best swap whose items were not swapped lately, better or worse, and the best
/// assignment within the limits on load and moves is kept. Being over a limit costs a penalty whose weight rises while
/// it lasts and falls otherwise, so that the search crosses states that are not allowed. Deterministic. `start` counts
/// as found if it is within the limits; if nothing is, the result is the start, of infinite value.
Partition search_partition(const PartitionProblem& problem, std::span<const std::int32_t> start, int steps,
                           Random random);

}  // namespace shunt::placement
