// What libshunt_cuda.so is made of, besides engines.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/device_library.hpp"

namespace shunt {

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
