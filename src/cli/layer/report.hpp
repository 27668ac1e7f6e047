// What `shunt bench layer` found, for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "cli/layer/config.hpp"
#include "cli/layer/measure.hpp"

namespace shunt::cli {

/// One layer on a device, part by part.
void print_layer_report(const LayerConfig& config, const LayerResult& result);

/// Systems on the host side by side. library: what computes products.
void print_layer_comparison(const LayerConfig& config, const std::vector<LayerResult>& results,
                            const std::string& world_name, const std::string& library);

/// The file is complete or not there. Figures of the last system stand at the top level, those of all in "systems".
void write_layer_json(const LayerConfig& config, const std::vector<LayerResult>& results,
                      const std::string& world_name);

}  // namespace shunt::cli
