// Output of benchmarks, for people and as JSON.
#pragma once

#include <string>
#include <vector>

#include "bench/layer/config.hpp"
#include "bench/layer/measure.hpp"
#include "bench/shuffle/config.hpp"
#include "bench/shuffle/measure.hpp"

namespace shunt::cli {

void print_report(const bench::ShuffleConfig& config, const bench::ShuffleResult& result,
                  const std::string& world_name);

/// Writes the file completely or not at all.
void write_json(const bench::ShuffleConfig& config, const bench::ShuffleResult& result, const std::string& world_name);

/// Prints the parts of one layer on a device.
void print_layer_report(const bench::LayerConfig& config, const bench::LayerResult& result);

/// Prints systems in host memory side by side. library: the library that computes products.
void print_layer_comparison(const bench::LayerConfig& config, const std::vector<bench::LayerResult>& results,
                            const std::string& world_name, const std::string& library);

/// Writes the file completely or not at all. The last system's figures are at the top level, those of all in "systems".
void write_layer_json(const bench::LayerConfig& config, const std::vector<bench::LayerResult>& results,
                      const std::string& world_name);

}  // namespace shunt::cli
