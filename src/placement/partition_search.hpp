// Local search for the group of each expert, by swaps whose effect on a sample of tokens is computed exactly.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "placement/random.hpp"
#include "placement/routed_tokens.hpp"

namespace shunt::placement {

/// The minimised objective: weighted sums and maxima of the number of tokens that touch ranks and nodes.
struct Objective {
  double rank_sum = 1;
  double node_sum = 0;
  double rank_most = 0;  ///< weight of the busiest rank; only the larger of this term and the next counts
  double node_most = 0;  ///< weight of the busiest node
};

/// Experts are assigned to `num_items` places, evenly over ranks. Items beyond the number of experts are vacancies, at
/// most one per rank, so that ranks differ by one expert at most.
struct PartitionProblem {
  const RoutedTokens& sample;
  std::vector<double> load;        ///< [experts]: an expert's share of all rows
  std::vector<std::int32_t> node;  ///< [ranks]
  Objective objective;
  double most_load;  ///< limit per rank, as a share of all rows
  /// [experts]: current ranks, and how many experts may leave them; empty: no current ranks.
  std::vector<std::int32_t> home = {};
  std::int64_t most_moves = 0;

  [[nodiscard]] std::size_t num_experts() const { return load.size(); }
  [[nodiscard]] std::size_t num_ranks() const { return node.size(); }
  [[nodiscard]] std::size_t num_items() const { return (num_experts() + num_ranks() - 1) / num_ranks() * num_ranks(); }
  /// The load of each rank under an assignment.
  [[nodiscard]] std::vector<double> rank_loads(std::span<const std::int32_t> rank_of) const;
};

struct Partition {
  std::vector<std::int32_t> rank_of;  ///< [items]
  double value = 0;                   ///< value of the objective on the sample
};

/// Appends a vacancy for each rank that has one expert less than others. rank_of: [experts], with counts per rank that
/// differ by at most one.
std::vector<std::int32_t> with_vacancies(std::span<const std::int32_t> rank_of, std::size_t num_ranks);

/// Tabu search: each step makes the best swap of items that were not swapped recently, even if it is worse, and the
/// best assignment within the limits on load and moves is kept. Exceeding a limit costs a penalty whose weight rises
/// while it is exceeded and falls otherwise, so that the search can cross infeasible states. Deterministic. `start`
/// counts as found if it is within the limits; if nothing is, the result is the start, with an infinite value.
Partition search_partition(const PartitionProblem& problem, std::span<const std::int32_t> start, int steps,
                           Random random);

}  // namespace shunt::placement
