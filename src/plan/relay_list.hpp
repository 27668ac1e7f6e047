// What a forwarder can't derive from counts: which tokens a far source sends through it, and where their rows go.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/counts.hpp"
#include "plan/plan_data.hpp"
#include "shunt/expert_map.hpp"

namespace shunt {

/// Appends the list for one flow of `plan`.
void write_relay_list(std::vector<std::uint32_t>& words, const PlanData& plan, const OutFlow& flow);

/// Of a list for that many tokens, at most.
std::size_t most_relay_words(std::size_t num_tokens, std::uint64_t topk);

/// The slots that one source may fill on each rank.
class SlotRuns {
 public:
  SlotRuns(const GlobalCounts& counts, const ExpertMap& map, const PlanOptions& options, RankId source);

  [[nodiscard]] bool contains(RankId rank, std::int64_t slot) const;

 private:
  struct Run {
    std::int64_t begin;
    std::int64_t end;
  };
  std::vector<std::vector<Run>> runs_;  // by rank, ascending
};

/// Takes a list off the front of `words`, which are a copy of what `source` sent. Throws PeerError unless
/// `source` could have made it for `plan.self`.
InFlow read_relay_list(std::span<const std::uint32_t>& words, const PlanData& plan, const SlotRuns& runs,
                       RankId source);

}  // namespace shunt
