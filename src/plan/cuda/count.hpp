// The first step of a plan: count this rank's rows per expert, and its tokens per rank, tile by tile.
#pragma once

#include <cuda_runtime_api.h>

#include "plan/cuda/map_tables.hpp"
#include "plan/cuda/plan_arrays.hpp"
#include "plan/cuda/routing_view.hpp"

namespace shunt::device {

/// Fills tile_counts and bad_entry.
void launch_count(const RoutingView& routing, const MapTables& map, const PlanArrays& plan, cudaStream_t stream);

void preload_count();

}  // namespace shunt::device
