// One rank's counts: all that the other ranks need of its routing to compute every slot. Also the capacity limit: a
// physical expert keeps its first rows in slot order and drops the rest.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/demand.hpp"
#include "plan/plan_data.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/topology.hpp"

namespace shunt {

struct SourceCounts {
  SourceCounts(const ExpertMap& map, const Topology& topology);

  std::vector<std::uint32_t> rows;             ///< [physical experts]
  std::vector<std::uint32_t> tokens_per_rank;  ///< [ranks]: distinct tokens for each rank
  std::vector<std::uint32_t> tokens_per_node;  ///< [nodes]: distinct tokens for each node
  std::uint32_t routed_tokens = 0;             ///< tokens with at least one expert

  /// The rows for each expert of a rank, and their sum.
  [[nodiscard]] std::span<const std::uint32_t> rows_of(RankId rank, const ExpertMap& map) const;
  [[nodiscard]] std::uint64_t rows_for(RankId rank, const ExpertMap& map) const;
};

SourceCounts count(const Demand& demand, const ExpertMap& map, const Topology& topology);

/// Throws PeerError if no routing can have the counts that `source` sent to `self`.
void check_counts(const SourceCounts& counts, const ExpertMap& map, const Topology& topology, RankId source,
                  RankId self);

/// Counts of all ranks. Needed for a capacity limit and for scoring placements, which consider all pairs of ranks.
struct GlobalCounts {
  std::int32_t num_ranks = 0;
  std::int32_t num_physical = 0;
  std::int32_t num_nodes = 0;
  std::vector<std::uint32_t> rows;             ///< [ranks, physical experts]
  std::vector<std::uint32_t> tokens_per_rank;  ///< [ranks, ranks]: distinct tokens of source for destination
  std::vector<std::uint32_t> tokens_per_node;  ///< [ranks, nodes]
  std::vector<std::uint32_t> routed_tokens;    ///< [ranks]: tokens with at least one expert
};

/// Empty, with memory reserved for all ranks.
GlobalCounts empty_counts(const ExpertMap& map, const Topology& topology);

/// Call it for the ranks in order.
void append(GlobalCounts& all, const SourceCounts& counts);

/// Reduces the rows of each (source, expert) to those that the expert keeps; lower sources have precedence.
void clamp_rows(GlobalCounts& counts, std::int64_t capacity);

/// Throws PeerError unless every rank kept exactly the rows that `clamped` grants it.
void check_kept(const GlobalCounts& kept, const GlobalCounts& clamped, RankId self);

}  // namespace shunt
