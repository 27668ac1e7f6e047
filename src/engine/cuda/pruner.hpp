// Pruning on a device.
#pragma once

#include <cstdint>
#include <memory>

#include "shunt/pruning.hpp"

namespace shunt {

std::shared_ptr<Pruner::Impl> make_device_pruner(const ExpertMap& map, const Topology& topology,
                                                 const PruneOptions& options, std::int64_t max_tokens, Memory memory);

}  // namespace shunt
