// One rank's counts: all that the others need to know of its routing to find every slot.
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
  std::vector<std::uint32_t> tokens_per_rank;  ///< [ranks]: distinct tokens for each
  std::vector<std::uint32_t> tokens_per_node;  ///< [nodes]: distinct tokens for each
  std::uint32_t routed_tokens = 0;             ///< tokens with at least one expert

  /// Rows for each expert of a rank, and over all of them.
  [[nodiscard]] std::span<const std::uint32_t> rows_of(RankId rank, const ExpertMap& map) const;
  [[nodiscard]] std::uint64_t rows_for(RankId rank, const ExpertMap& map) const;
};

SourceCounts count(const Demand& demand, const ExpertMap& map, const Topology& topology);

/// Throws PeerError if no routing could have given the counts that `source` sent to `self`.
void check_counts(const SourceCounts& counts, const ExpertMap& map, const Topology& topology, RankId source,
                  RankId self);

/// Counts of all ranks, where all pairs are looked at: by a capacity limit, and by whoever scores placements.
struct GlobalCounts {
  std::int32_t num_ranks = 0;
  std::int32_t num_physical = 0;
  std::int32_t num_nodes = 0;
  std::vector<std::uint32_t> rows;             ///< [ranks, physical experts]
  std::vector<std::uint32_t> tokens_per_rank;  ///< [ranks, ranks]: distinct tokens of source for destination
  std::vector<std::uint32_t> tokens_per_node;  ///< [ranks, nodes]
  std::vector<std::uint32_t> routed_tokens;    ///< [ranks]: tokens with at least one expert
};

/// No rank's counts yet, but room for all.
GlobalCounts empty_counts(const ExpertMap& map, const Topology& topology);

/// Ranks are appended in order.
void append(GlobalCounts& all, const SourceCounts& counts);

}  // namespace shunt
