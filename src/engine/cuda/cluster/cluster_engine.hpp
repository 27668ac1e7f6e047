// The engine on devices of several nodes: the host drives, as on host memory, and kernels move rows.
#pragma once

#include <memory>

#include "engine/cuda/device_heap.hpp"
#include "engine/engine_impl.hpp"

namespace shunt {

/// Collective.
std::shared_ptr<Engine::Impl> make_cluster_engine(World& world, const EngineOptions& options,
                                                  std::shared_ptr<DeviceHeap> heap);

}  // namespace shunt
