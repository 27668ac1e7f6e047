// One rank's part in a random case, on a device.
#pragma once

#include "shunt/device_engine.hpp"
#include "support/cuda/device.hpp"
#include "support/shuffle_case.hpp"

namespace shunt::test {

/// Whether a device engine can do what the case asks.
bool is_for_devices(const ShuffleCase& all);

/// Makes an engine, plans and runs all four operations, and compares every bit with the reference. Collective. Throws
/// what differs, with the case's seed and description. A bound: the plan is given this many rows more than needed.
/// Repeats: of the operations, with one plan.
void run_device_case(World& world, const DeviceHeap& heap, Arena& arena, const ShuffleCase& all,
                     std::optional<std::int64_t> spare_rows = std::nullopt, int repeats = 1);

}  // namespace shunt::test
