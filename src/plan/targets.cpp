#include "plan/targets.hpp"

namespace shunt {

void fill_expert_targets(PlanData& plan, const Demand& demand, const Routing& routing, const ExpertMap& map,
                         std::span<const std::int32_t> first_slot) {
  const auto topk = static_cast<std::size_t>(routing.topk);
  std::vector<std::int32_t> next_slot(first_slot.begin(), first_slot.end());
  plan.first_target = demand.first_entry;
  plan.targets.resize(demand.entries.size());
  Target* target = plan.targets.data();
  for (std::size_t token = 0; token < demand.num_tokens(); ++token)
    for (const DemandEntry entry : demand.entries_of(token))
      *target++ = {.rank = map.rank(entry.expert),
                   .slot = Slot(next_slot[entry.expert.index()]++),
                   .choice = entry.choice,
                   .weight = routing.weight(token * topk + static_cast<std::size_t>(entry.choice))};
}

void fill_unique_targets(PlanData& plan, const Demand& demand, const ExpertMap& map,
                         std::span<const std::int32_t> first_slot) {
  std::vector<std::int32_t> next_slot(first_slot.begin(), first_slot.end());
  plan.first_target.reserve(demand.first_entry.size());
  plan.first_target.push_back(0);
  plan.targets.reserve(demand.entries.size());
  for (std::size_t token = 0; token < demand.num_tokens(); ++token) {
    RankId last_rank;
    for (const DemandEntry entry : demand.entries_of(token)) {
      const RankId rank = map.rank(entry.expert);
      if (rank == last_rank) continue;
      plan.targets.push_back({.rank = rank, .slot = Slot(next_slot[rank.index()]++), .choice = -1, .weight = 1.0f});
      last_rank = rank;
    }
    plan.first_target.push_back(static_cast<std::uint32_t>(plan.targets.size()));
  }
}

}  // namespace shunt
