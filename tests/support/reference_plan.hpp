// A slow, obvious planner: sees the routing of all ranks at once and follows the definitions in docs and headers word
// by word. Every plan is compared with it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "plan/plan_data.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/plan.hpp"
#include "shunt/routing.hpp"
#include "shunt/topology.hpp"

namespace shunt::test {

/// The plans of all ranks, without hash. `routings` is [ranks] and valid.
std::vector<PlanData> reference_plans(std::span<const Routing> routings, const ExpertMap& map, const Topology& topology,
                                      const PlanOptions& options);

/// Empty if the plans are equal but for the hash, else the name of the first field that differs.
std::string difference(const PlanData& a, const PlanData& b);

}  // namespace shunt::test
