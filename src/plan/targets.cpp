#include "plan/targets.hpp"

#include <algorithm>

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
  plan.first_target.resize(demand.first_entry.size());
  plan.targets.resize(demand.entries.size());
  std::size_t end = 0;
  for (std::size_t token = 0; token < demand.num_tokens(); ++token) {
    RankId last_rank;
    for (const DemandEntry entry : demand.entries_of(token)) {
      const RankId rank = map.rank(entry.expert);
      // Overwritten until the rank changes: whether it does is a coin toss that no branch predicts.
      const bool is_new = rank != last_rank;
      end += is_new;
      auto& next = next_slot[rank.index()];
      next += is_new;
      plan.targets[end - 1] = {.rank = rank, .slot = Slot(next - 1), .choice = -1, .weight = 1.0f};
      last_rank = rank;
    }
    plan.first_target[token + 1] = static_cast<std::uint32_t>(end);
  }
  plan.targets.resize(end);
}

void sort_by_logical_expert(PlanData& plan, const Routing& routing) {
  for (std::size_t token = 0; token < static_cast<std::size_t>(plan.num_tokens); ++token) {
    const auto expert_of = [&](const Target& target) {
      return routing.experts[token * static_cast<std::size_t>(plan.topk) + static_cast<std::size_t>(target.choice)];
    };
    std::sort(plan.targets.begin() + plan.first_target[token], plan.targets.begin() + plan.first_target[token + 1],
              [&](const Target& a, const Target& b) { return expert_of(a) < expert_of(b); });
  }
}

}  // namespace shunt
