// Sums over all ranks' counts, computed in one pass, source by source. Their size, and the size of a plan, does not
// grow with the number of pairs of ranks; the exception, tokens by node, lives only while the plan is made.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/hash.hpp"
#include "plan/counts.hpp"
#include "plan/plan_data.hpp"

namespace shunt {

class CountSums {
 public:
  /// Map and topology must outlive this object.
  CountSums(const ExpertMap& map, const Topology& topology, const Wiring& wiring, RankId self, Layout layout);

  /// Adds the next rank's counts, which must have been checked. Call it once for every rank in order, including this
  /// one.
  void add(const SourceCounts& counts);

  /// Sums over all sources, and over the sources before this rank.
  struct Columns {
    std::vector<std::int64_t> all;
    std::vector<std::int64_t> before;
  };
  [[nodiscard]] const Columns& rows() const { return rows_; }      ///< [physical experts]
  [[nodiscard]] const Columns& tokens() const { return tokens_; }  ///< [ranks]

  /// Several machines only: counts of each source for the ranks of this rank's node, and the sums over lower sources.
  struct NodeCounts {
    std::vector<std::uint32_t> rows;          ///< [sources, experts of the node]
    std::vector<std::int64_t> rows_before;    ///< the same shape
    std::vector<std::uint32_t> tokens;        ///< [sources, ranks of the node]
    std::vector<std::int64_t> tokens_before;  ///< the same shape
  };
  [[nodiscard]] const NodeCounts& node_counts() const { return node_counts_; }
  /// Several machines only: a source's tokens for this rank, and its rows for each of this rank's experts.
  [[nodiscard]] std::uint32_t tokens_from(RankId source) const;
  [[nodiscard]] std::span<const std::uint32_t> rows_from(RankId source) const;
  /// Several machines only: [ranks, nodes].
  [[nodiscard]] std::span<const std::uint32_t> tokens_per_node() const { return tokens_per_node_; }

  [[nodiscard]] const SourceCounts& own() const { return own_; }
  /// All fields except those that depend on the choice of forwarders.
  [[nodiscard]] const TrafficCounts& traffic() const { return traffic_; }
  /// Equal on all ranks.
  [[nodiscard]] std::uint64_t hash() const { return hasher_.value(); }

 private:
  void add_node_counts(const SourceCounts& counts);

  const ExpertMap& map_;
  const Topology& topology_;
  RankId self_;
  Layout layout_;
  bool has_far_;
  RankId source_{0};  // the source of the next counts
  Columns rows_;
  Columns tokens_;
  NodeCounts node_counts_;
  std::vector<std::uint32_t> tokens_per_node_;
  SourceCounts own_;
  TrafficCounts traffic_;
  Hasher hasher_;
};

}  // namespace shunt
