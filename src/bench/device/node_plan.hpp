// What benchmarks read of a plan that was made on a device, beyond what users see of it.
#pragma once

#include "engine/cuda/node_plan.hpp"
#include "shunt/plan.hpp"

namespace shunt::bench {

/// Valid as long as the plan.
struct NodePlanParts {
  const device::PlanShape& shape;
  const device::PlanArrays& arrays;
};

/// Of an engine on devices of one node. Not checked by sanitizers: the type's description is in libshunt_cuda.so alone.
__attribute__((no_sanitize("vptr"))) inline NodePlanParts node_plan(const Plan& plan) {
  const auto& made = static_cast<const NodePlan&>(*plan.data());
  return {made.shape, made.arrays};
}

}  // namespace shunt::bench
