// Where each of this rank's rows goes.
#pragma once

#include <cstdint>
#include <span>

#include "plan/demand.hpp"
#include "plan/plan_data.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/routing.hpp"

namespace shunt {

/// One target per entry of the demand. first_slot is [physical experts], for this rank's first row.
void fill_expert_targets(PlanData& plan, const Demand& demand, const Routing& routing, const ExpertMap& map,
                         std::span<const std::int32_t> first_slot);

/// One target per (token, rank). first_slot is [ranks], for this rank's first token.
void fill_unique_targets(PlanData& plan, const Demand& demand, const ExpertMap& map,
                         std::span<const std::int32_t> first_slot);

/// Sets what each target closes as the token's owner sums its list, or as a forwarder sums one token's on its node.
void close_sums(PlanData& plan, bool is_flat);
void close_in_node(std::span<Target> targets);

/// For `reduction = flat`; the functions above list a token's targets in tree order.
void sort_by_logical_expert(PlanData& plan, const Routing& routing);

}  // namespace shunt
