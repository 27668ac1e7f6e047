// Slots of rows in their receivers' outputs, from counts only: experts ascend, then source ranks, then tokens. Also the
// target of each of this rank's rows, which is a rank and a slot.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/count_sums.hpp"
#include "plan/demand.hpp"
#include "plan/plan_data.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/routing.hpp"

namespace shunt {

/// The expert-major rows of all ranks.
struct ExpertRows {
  std::vector<std::int64_t> offsets;       ///< [physical experts]: first row of the expert on its rank
  std::vector<std::int64_t> totals;        ///< [physical experts]: rows without padding; empty for `padded`
  std::vector<std::int32_t> first_slot;    ///< [physical experts]: slot of this rank's first row for the expert
  std::vector<std::int64_t> rows_of_rank;  ///< [ranks]: rows with padding, including that after the last expert
};

/// Throws Error(invalid_argument) if a rank's rows don't fit 32 bits; all ranks throw the same.
ExpertRows expert_rows(const CountSums& sums, const ExpertMap& map, RankId self, std::int32_t alignment);

ExpertRows padded_rows(const ExpertMap& map, RankId self, std::int64_t max_tokens);

/// The rows of all ranks in `token_unique`.
struct UniqueRows {
  std::vector<std::int32_t> first_slot;    ///< [ranks]: slot of this rank's first token on the rank
  std::vector<std::int64_t> rows_of_rank;  ///< [ranks]
};

/// Throws as expert_rows does.
UniqueRows unique_rows(const CountSums& sums, RankId self);

// Both set Target::closes as for one node.

/// One target per entry of the demand. first_slot: [physical experts], the slot of this rank's first row.
void fill_expert_targets(PlanData& plan, const Demand& demand, const Routing& routing, const ExpertMap& map,
                         std::span<const std::int32_t> first_slot);

/// One target per (token, rank). first_slot: [ranks], the slot of this rank's first token.
void fill_unique_targets(PlanData& plan, const Demand& demand, const ExpertMap& map,
                         std::span<const std::int32_t> first_slot);

/// Set Target::closes: of all lists of this rank as the tokens' owner, for `flat` and for several nodes; of one token's
/// list that a forwarder sums on its node.
void close_flat_sums(PlanData& plan);
void close_sums_of_nodes(PlanData& plan);
void close_in_node(std::span<Target> targets);

/// For `reduction = flat`: sorts each token's targets, which the functions above leave in tree order.
void sort_by_logical_expert(PlanData& plan, const Routing& routing);

}  // namespace shunt
