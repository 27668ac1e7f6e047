// What `shunt bench layer` found, for people and for programs.
#pragma once

#include "cli/layer/config.hpp"
#include "cli/layer/measure.hpp"

namespace shunt::cli {

void print_layer_report(const LayerConfig& config, const LayerResult& result);
void write_layer_json(const LayerConfig& config, const LayerResult& result);

}  // namespace shunt::cli
