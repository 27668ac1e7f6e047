// The parts of libshunt_cuda.so.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/device_library.hpp"

namespace shunt {

struct DeviceHeap;

/// Collective. For devices of several nodes.
std::shared_ptr<Engine::Impl> make_cluster_engine(World& world, const EngineOptions& options,
                                                  std::shared_ptr<DeviceHeap> heap);

std::shared_ptr<Pruner::Impl> make_device_pruner(const ExpertMap& map, const Topology& topology,
                                                 const PruneOptions& options, std::int64_t max_tokens, Memory memory);

namespace device {

/// By index, without a context on any. Throws Error(unsupported) where there is no driver or no device.
std::vector<DeviceFacts> describe_devices();

/// Loads every kernel on the current device. Called before ranks wait for each other: a kernel's first launch may need
/// an idle device.
void preload_kernels();

}  // namespace device
}  // namespace shunt
