// What a plan needs of all ranks' counts, summed up in one pass, source by source. Nothing here, and so nothing in a
// plan but the tokens by node that forwarders are chosen from while it is made, grows with the number of pairs of
// ranks.
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
  /// Map and topology outlive this object.
  CountSums(const ExpertMap& map, const Topology& topology, const Wiring& wiring, RankId self, Layout layout);

  /// The next rank's counts, checked before; to be called once for every rank, this one's own included.
  void add(const SourceCounts& counts);

  /// Sums over all sources, and over the sources before this rank.
  struct Columns {
    std::vector<std::int64_t> all;
    std::vector<std::int64_t> before;
  };
  [[nodiscard]] const Columns& rows() const { return rows_; }      ///< [physical experts]
  [[nodiscard]] const Columns& tokens() const { return tokens_; }  ///< [ranks]

  /// Several hosts: what each source has for the ranks of this rank's node, and what the sources before it have.
  struct Here {
    std::vector<std::uint32_t> rows;          ///< [sources, experts of the node]
    std::vector<std::int64_t> rows_before;    ///< the same
    std::vector<std::uint32_t> tokens;        ///< [sources, ranks of the node]
    std::vector<std::int64_t> tokens_before;  ///< the same
  };
  [[nodiscard]] const Here& here() const { return here_; }
  /// Several hosts: what a source has for this rank; rows by expert.
  [[nodiscard]] std::uint32_t tokens_from(RankId source) const;
  [[nodiscard]] std::span<const std::uint32_t> rows_from(RankId source) const;
  /// Several hosts: [ranks, nodes].
  [[nodiscard]] std::span<const std::uint32_t> tokens_per_node() const { return tokens_per_node_; }

  [[nodiscard]] const SourceCounts& own() const { return own_; }
  /// All but what the choice of forwarders decides.
  [[nodiscard]] const TrafficCounts& traffic() const { return traffic_; }
  /// Equal on all ranks.
  [[nodiscard]] std::uint64_t hash() const { return hasher_.value(); }

 private:
  void add_here(const SourceCounts& counts);

  const ExpertMap& map_;
  const Topology& topology_;
  RankId self_;
  Layout layout_;
  bool has_far_;
  RankId source_{0};  // whose counts come next
  Columns rows_;
  Columns tokens_;
  Here here_;
  std::vector<std::uint32_t> tokens_per_node_;
  SourceCounts own_;
  TrafficCounts traffic_;
  Hasher hasher_;
};

}  // namespace shunt
