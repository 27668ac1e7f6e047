// Chooses the copies of experts that serve each token; runs before counting if experts have several copies.
#pragma once

#include <cuda_runtime_api.h>

#include "plan/cuda/map_tables.hpp"
#include "plan/cuda/routing_view.hpp"

namespace shunt::device {

/// copies: [tokens, topk], device: physical experts; −1 where the routing drops an expert or repeats one.
void launch_choose(const RoutingView& routing, const MapTables& map, std::int32_t* copies, cudaStream_t stream);

void preload_choose();

}  // namespace shunt::device
