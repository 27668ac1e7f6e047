// One rank's part in a random case, on a device.
#pragma once

#include "shunt/device_engine.hpp"
#include "support/cuda/device.hpp"
#include "support/shuffle_case.hpp"

namespace shunt::test {

/// Whether a device engine can do what the case asks.
bool is_for_devices(const ShuffleCase& all);

/// How a case is run on a device.
struct DeviceCaseOptions {
  /// A bound: the plan is given this many rows more than needed.
  std::optional<std::int64_t> spare_rows = std::nullopt;
  /// Rows are given to the plan, and dispatch comes next to it in a graph. Needs a bound.
  bool rows_with_plan = false;
  /// As in DeviceEngineOptions.
  std::int32_t sms = 0;
  /// Of a plan and the operations with it.
  int repeats = 1;
};

/// Makes an engine, plans and runs all four operations, and compares every bit with the reference. Collective. Throws
/// what differs, with the case's seed and description.
void run_device_case(World& world, const DeviceHeap& heap, Arena& arena, const ShuffleCase& all,
                     const DeviceCaseOptions& options = {});

}  // namespace shunt::test
