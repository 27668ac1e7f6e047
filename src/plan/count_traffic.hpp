// The one counter of bytes: plans report it, placement and simulation score with it.
#pragma once

#include <cstdint>
#include <span>

#include "plan/plan_data.hpp"
#include "shunt/topology.hpp"
#include "shunt/traffic.hpp"

namespace shunt {

/// first_physical is [ranks + 1], as in PlanData. `layout` is not `padded`.
Traffic count_traffic(const GlobalCounts& counts, std::span<const std::int32_t> first_physical,
                      const Topology& topology, Layout layout, std::size_t row_bytes);

}  // namespace shunt
