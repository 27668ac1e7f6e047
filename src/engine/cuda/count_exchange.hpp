// The barrier of a plan: ranks publish their counts, and derive slots from all of them.
#pragma once

#include <cuda_runtime_api.h>

#include "plan/cuda/map_tables.hpp"
#include "plan/cuda/plan_arrays.hpp"
#include "transport/cuda/control.hpp"

namespace shunt::device {

struct CountExchange {
  Control control;
  BarrierRecord record;
  PlanShape shape;
  MapTables map;
  SlotRules rules;
  PlanArrays plan;
  PlanSizes* host_sizes;        ///< pinned: sizes for the host
  const std::int32_t* experts;  ///< the routing, to name its first bad entry
  bool drops;                   ///< rows beyond the bound are dropped; else they are a fault
};

void launch(const CountExchange& exchange, cudaStream_t stream);
void preload_count_exchange();

}  // namespace shunt::device
