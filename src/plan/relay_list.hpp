// What a forwarder can't derive from counts: the tokens that a far source sends through it, and the slots of their
// rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan_data.hpp"
#include "plan/slots.hpp"
#include "shunt/expert_map.hpp"

namespace shunt {

/// Appends the list for one flow of `plan`.
void write_relay_list(std::vector<std::uint32_t>& words, const PlanData& plan, const OutFlow& flow);

/// Upper bound on the list for that many tokens.
std::size_t most_relay_words(std::size_t num_tokens, std::uint64_t topk);

/// The slots in this rank's node that each source may fill; computed once per plan.
class SlotRuns {
 public:
  /// `rows` must be derived from `sums`.
  SlotRuns(const CountSums& sums, const ExpertMap& map, const Topology& topology, const PlanOptions& options,
           RankId self, const ExpertRows& rows);

  /// rank: a rank of this node.
  [[nodiscard]] bool contains(RankId source, RankId rank, std::int64_t slot) const;

 private:
  struct Run {
    std::int64_t begin;
    std::int64_t end;
  };
  std::span<const RankId> ranks_;
  std::vector<std::size_t> first_;  // [ranks of the node + 1]: first run of each rank, in a source's runs
  std::vector<Run> runs_;           // [sources, first_.back()]: ascending for each rank
};

/// Removes a list from the front of `words`, which must be a private copy of what `source` sent. Throws PeerError
/// unless `source` could have made it for `plan.self`.
InFlow read_relay_list(std::span<const std::uint32_t>& words, const PlanData& plan, const SlotRuns& runs,
                       RankId source);

}  // namespace shunt
