// Runs the benchmark on one rank whose tokens are on a device.
#pragma once

#include "cli/shuffle/config.hpp"
#include "cli/shuffle/measure.hpp"
#include "shunt/world.hpp"

namespace shunt::cli {

/// Collective over threads of one process that share its current device. Verifies every system, then measures them in
/// turn, iteration by iteration. Throws Error(unsupported) in builds without CUDA.
ShuffleResult measure_on_device(World& world, const ShuffleConfig& config);

/// Before CUDA starts: lets as many ranks wait for each other on one device as there are.
void prepare_device(const ShuffleConfig& config);

}  // namespace shunt::cli
