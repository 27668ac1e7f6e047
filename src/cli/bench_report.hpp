// What people and programs read of a benchmark.
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

/// The JSON of design.md; the file is complete or not there.
void write_json(const bench::ShuffleConfig& config, const bench::ShuffleResult& result, const std::string& world_name);

/// One layer on a device, part by part.
void print_layer_report(const bench::LayerConfig& config, const bench::LayerResult& result);

/// Systems on the host side by side. library: what computes products.
void print_layer_comparison(const bench::LayerConfig& config, const std::vector<bench::LayerResult>& results,
                            const std::string& world_name, const std::string& library);

/// The file is complete or not there. Figures of the last system stand at the top level, those of all in "systems".
void write_layer_json(const bench::LayerConfig& config, const std::vector<bench::LayerResult>& results,
                      const std::string& world_name);

}  // namespace shunt::cli
