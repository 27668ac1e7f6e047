// What benchmarks read of a plan that was made on a device, beyond what users see of it.
#pragma once

#include "engine/cuda/node_plan.hpp"
#include "shunt/plan.hpp"

namespace shunt::bench {

/// Of an engine on devices of one node. Not checked by sanitizers: the type's description is in libshunt_cuda.so alone.
__attribute__((no_sanitize("vptr"))) inline const NodePlan& node_plan(const Plan& plan) {
  return static_cast<const NodePlan&>(*plan.data());
}

}  // namespace shunt::bench
