// This rank's tokens for far nodes, by the forwarder that they take.
#pragma once

#include <vector>

#include "plan/balance.hpp"
#include "plan/plan_data.hpp"

namespace shunt {

/// The tokens that have targets on each node, ascending; empty for near nodes.
std::vector<std::vector<std::uint32_t>> tokens_of_far_nodes(const PlanData& plan);

/// Flows of at least one token. `tokens` is as above, and shares of this rank add up to it.
std::vector<OutFlow> split_flows(const PlanData& plan, const std::vector<std::vector<std::uint32_t>>& tokens,
                                 const FlowShares& shares);

/// Shares of this rank alone, for `padded`, where nobody knows the others' counts: all forwarders of a node alike.
FlowShares even_shares(const PlanData& plan, const std::vector<std::vector<std::uint32_t>>& tokens);

}  // namespace shunt
