#include "plan/slots.hpp"

#include <algorithm>
#include <limits>

#include "core/fail.hpp"

namespace shunt {
namespace {

void check_fits(std::int64_t rows, RankId receiver, RankId self) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (rows > kMost)
    fail(ErrorCode::invalid_argument, "plan: rank {}: rank {} would receive {} rows or more, expected at most {}", self,
         receiver, rows, kMost);
}

std::int64_t align_up(std::int64_t value, std::int64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

}  // namespace

ExpertRows expert_rows(const CountSums& sums, const ExpertMap& map, RankId self, std::int32_t alignment) {
  const auto& [all, before] = sums.rows();
  ExpertRows rows;
  for (std::int32_t r = 0; r < map.num_ranks(); ++r) {
    const RankId rank(r);
    std::int64_t end = 0;
    for (std::int32_t local = 0; local < map.num_local(rank); ++local) {
      const auto expert = rows.offsets.size();
      rows.offsets.push_back(end);
      rows.first_slot.push_back(static_cast<std::int32_t>(end + before[expert]));
      end = align_up(end + all[expert], alignment);
      check_fits(end, rank, self);
    }
    rows.rows_of_rank.push_back(end);
  }
  rows.totals = all;
  return rows;
}

ExpertRows padded_rows(const ExpertMap& map, RankId self, std::int64_t max_tokens) {
  ExpertRows rows;
  const std::int64_t block = map.num_ranks() * max_tokens;
  for (std::int32_t r = 0; r < map.num_ranks(); ++r) {
    const std::int32_t num_local = map.num_local(RankId(r));
    for (std::int32_t local = 0; local < num_local; ++local) {
      rows.offsets.push_back(local * block);
      rows.first_slot.push_back(static_cast<std::int32_t>(local * block + self.value * max_tokens));
    }
    rows.rows_of_rank.push_back(num_local * block);
  }
  return rows;
}

UniqueRows unique_rows(const CountSums& sums, RankId self) {
  const auto& [all, before] = sums.tokens();
  UniqueRows rows;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    check_fits(all[rank], RankId(rank), self);
    rows.first_slot.push_back(static_cast<std::int32_t>(before[rank]));
  }
  rows.rows_of_rank = all;
  return rows;
}

void fill_expert_targets(PlanData& plan, const Demand& demand, const Routing& routing, const ExpertMap& map,
                         std::span<const std::int32_t> first_slot) {
  const auto topk = static_cast<std::size_t>(routing.topk);
  std::vector<std::int32_t> next_slot(first_slot.begin(), first_slot.end());
  plan.first_target = demand.first_entry;
  plan.targets.resize(demand.entries.size());
  // In locals: stores to targets might change members, for all that the compiler knows.
  Target* target = plan.targets.data();
  std::int32_t* const slots = next_slot.data();
  const bool has_weights = !routing.weights.empty();
  const float* weights = routing.weights.data();
  for (std::size_t token = 0; token < demand.num_tokens(); ++token, weights += has_weights ? topk : 0) {
    const auto entries = demand.entries_of(token);
    if (entries.empty()) continue;
    const auto make = [&](const DemandEntry& entry, RankId rank, Closes closes) -> Target {
      return {.rank = rank,
              .slot = Slot(slots[entry.expert.index()]++),
              .choice = static_cast<std::int16_t>(entry.choice),
              .closes = closes,
              .weight = has_weights ? weights[entry.choice] : 1.0f};
    };
    RankId rank = map.rank(entries.front().expert);
    for (std::size_t i = 0; i + 1 < entries.size(); ++i) {
      const RankId next = map.rank(entries[i + 1].expert);
      // Whether the rank changes is random, so a branch would be mispredicted.
      *target++ = make(entries[i], rank, static_cast<Closes>(next != rank));
      rank = next;
    }
    *target++ = make(entries.back(), rank, Closes::node);
  }
}
static_assert(Closes(false) == Closes::nothing && Closes(true) == Closes::rank);

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
      // Overwritten until the rank changes: whether it does is random, so a branch would be mispredicted.
      const bool is_new = rank != last_rank;
      end += is_new;
      auto& next = next_slot[rank.index()];
      next += is_new;
      plan.targets[end - 1] = {
          .rank = rank, .slot = Slot(next - 1), .choice = -1, .closes = Closes::rank, .weight = 1.0f};
      last_rank = rank;
    }
    if (end > plan.first_target[token]) plan.targets[end - 1].closes = Closes::node;
    plan.first_target[token + 1] = static_cast<std::uint32_t>(end);
  }
  plan.targets.resize(end);
}

void sort_by_logical_expert(PlanData& plan, const Routing& routing) {
  for (std::size_t token = 0; token < static_cast<std::size_t>(plan.num_tokens); ++token) {
    const auto expert_of = [&](const Target& target) {
      return routing.experts
          .narrow()[token * static_cast<std::size_t>(plan.topk) + static_cast<std::size_t>(target.choice)];
    };
    std::sort(plan.targets.begin() + plan.first_target[token], plan.targets.begin() + plan.first_target[token + 1],
              [&](const Target& a, const Target& b) { return expert_of(a) < expert_of(b); });
  }
}

void close_flat_sums(PlanData& plan) {
  for (std::size_t token = 0; token + 1 < plan.first_target.size(); ++token)
    for (std::size_t i = plan.first_target[token], end = plan.first_target[token + 1]; i < end; ++i)
      plan.targets[i].closes = i + 1 == end ? Closes::node : Closes::nothing;
}

void close_sums_of_nodes(PlanData& plan) {
  std::vector<NodeId> nodes;
  for (std::int32_t rank = 0; rank < plan.topology.num_ranks(); ++rank)
    nodes.push_back(plan.topology.node(RankId(rank)));
  const NodeId home = nodes[plan.self.index()];
  for (std::size_t token = 0; token + 1 < plan.first_target.size(); ++token) {
    NodeId following;
    for (std::size_t i = plan.first_target[token + 1]; i-- > plan.first_target[token];) {
      Target& target = plan.targets[i];
      const NodeId node = nodes[target.rank.index()];
      const Closes closes_node = node == home ? Closes::node : Closes::remote_node;
      target.closes = node != following ? closes_node : target.closes;
      following = node;
    }
  }
}

void close_in_node(std::span<Target> targets) {
  for (std::size_t i = 0; i + 1 < targets.size(); ++i)
    targets[i].closes = targets[i + 1].rank != targets[i].rank ? Closes::rank : Closes::nothing;
  targets.back().closes = Closes::node;
}

}  // namespace shunt
