// What people and programs read of a benchmark.
#pragma once

#include <string>

#include "cli/shuffle/config.hpp"
#include "cli/shuffle/measure.hpp"

namespace shunt::cli {

void print_report(const ShuffleConfig& config, const ShuffleResult& result, const std::string& world_name);

/// The JSON of design.md; the file is complete or not there.
void write_json(const ShuffleConfig& config, const ShuffleResult& result, const std::string& world_name);

}  // namespace shunt::cli
