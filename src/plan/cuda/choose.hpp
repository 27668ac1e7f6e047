// Before tokens are counted or sent, where experts have several copies: which of them serve each token.
#pragma once

#include <cuda_runtime_api.h>

#include "plan/cuda/map_tables.hpp"
#include "plan/cuda/routing_view.hpp"

namespace shunt::device {

/// copies: [tokens, topk], device: physical experts; −1 where the routing names none, or one that it named before.
void launch_choose(const RoutingView& routing, const MapTables& map, std::int32_t* copies, cudaStream_t stream);

void preload_choose();

}  // namespace shunt::device
