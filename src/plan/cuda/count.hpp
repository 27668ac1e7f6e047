// The first step of a plan, counting this rank's rows per expert and its tokens per rank, tile by tile; and after the
// exchange of counts, the removal of what a capacity limit drops, so that later steps see the clamped routing.
#pragma once

#include <cuda_runtime_api.h>

#include "plan/cuda/map_tables.hpp"
#include "plan/cuda/plan_arrays.hpp"
#include "plan/cuda/routing_view.hpp"

namespace shunt::device {

/// Fills tile_counts and bad_entry.
void launch_count(const RoutingView& routing, const MapTables& map, const PlanArrays& plan, cudaStream_t stream);

void preload_count();

/// Runs after the counts are exchanged, which gives `kept`. experts: output, [tokens, topk]: the routing's experts, −1
/// where dropped.
struct Clamp {
  RoutingView routing;
  MapTables map;
  PlanArrays plan;
  std::int32_t* experts;
  std::int32_t* copies;  ///< routing.copies, set to −1 where dropped, since a new choice could differ; may be null
  const std::uint32_t* stop;  ///< device; if the word is not 0, the kernel does nothing
};

void launch(const Clamp& clamp, cudaStream_t stream);
void preload_clamp();

}  // namespace shunt::device
