// What ends with a token's target in the reduction tree.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/reduce.hpp"
#include "plan/plan_data.hpp"

namespace shunt {

/// Of all targets of one token, as the token's owner sums them.
inline Closes closes_in_token(const PlanData& plan, bool is_flat, std::span<const Target> targets, std::size_t i) {
  const bool last = i + 1 == targets.size();
  if (is_flat) return last ? Closes::node : Closes::nothing;
  const NodeId node = plan.topology.node(targets[i].rank);
  if (last || plan.topology.node(targets[i + 1].rank) != node)
    return node == plan.topology.node(plan.self) ? Closes::node : Closes::remote_node;
  return targets[i + 1].rank != targets[i].rank ? Closes::rank : Closes::nothing;
}

/// Of one node's targets of a token, as the node's forwarder sums them.
inline Closes closes_in_node(std::span<const Target> targets, std::size_t i) {
  if (i + 1 == targets.size()) return Closes::node;
  return targets[i + 1].rank != targets[i].rank ? Closes::rank : Closes::nothing;
}

}  // namespace shunt
