// What needs CUDA: a library of its own, loaded when something on a device is made.
#pragma once

#include <memory>
#include <vector>

#include "core/backend.hpp"
#include "engine/device_facts.hpp"
#include "shunt/engine.hpp"
#include "shunt/pruning.hpp"

namespace shunt {

struct DeviceLibrary {
  std::shared_ptr<Engine::Impl> (*make_engine)(World& world, const EngineOptions& options);
  std::shared_ptr<Pruner::Impl> (*make_pruner)(const ExpertMap& map, const Topology& topology,
                                               const PruneOptions& options, std::int64_t max_tokens, Memory memory);
  /// Of this process, by index. Throws Error(unsupported) where there is no driver or no device.
  std::vector<DeviceFacts> (*describe_devices)();
};

/// Throws Error(unsupported) that says what to do where there is none.
inline const DeviceLibrary& require_device_library() { return require_backend<DeviceLibrary>("cuda"); }

}  // namespace shunt
