// Runs the benchmark on one rank whose tokens are on a device.
#pragma once

#include "cli/shuffle/config.hpp"
#include "cli/shuffle/measure.hpp"
#include "shunt/world.hpp"

namespace shunt::cli {

/// Collective over threads of one process that share its current device. Verifies every system, then measures them in
/// turn, iteration by iteration. Throws Error(unsupported) in builds without CUDA.
ShuffleResult measure_on_device(World& world, const ShuffleConfig& config);

/// Throws Error(unsupported) where there is no device, or in builds without CUDA. Lets as many ranks wait for each
/// other on one device as there are, if CUDA has not started yet.
void prepare_device();

}  // namespace shunt::cli
