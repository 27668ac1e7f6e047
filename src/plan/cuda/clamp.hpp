// A routing without what a capacity drops, so that all that follows from it can be derived as if it had been routed so.
#pragma once

#include <cuda_runtime_api.h>

#include "plan/cuda/map_tables.hpp"
#include "plan/cuda/plan_arrays.hpp"
#include "plan/cuda/routing_view.hpp"

namespace shunt::device {

/// When counts have been exchanged, `kept` is known. experts: [tokens, topk], as in the routing, −1 where dropped.
struct Clamp {
  RoutingView routing;
  MapTables map;
  PlanArrays plan;
  std::int32_t* experts;
  std::int32_t* copies;  ///< routing.copies, set to −1 where dropped: chosen anew, they could be others; may be null
  const std::uint32_t* stop;  ///< device: nothing is done where it is set
};

void launch(const Clamp& clamp, cudaStream_t stream);
void preload_clamp();

}  // namespace shunt::device
