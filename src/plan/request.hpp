// Checks of a plan request, before the routing's entries are read.
#pragma once

#include "core/narrow_routing.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/plan.hpp"
#include "shunt/routing.hpp"
#include "shunt/topology.hpp"

namespace shunt {

/// Throws Error(invalid_argument) that names `self` and the cause.
void check_request(const Routing& routing, const ExpertMap& map, const Topology& topology, RankId self,
                   const PlanOptions& options);

/// Checks the sizes of a routing and its topk only.
void check_routing(const Routing& routing, const Caller& caller);

}  // namespace shunt
