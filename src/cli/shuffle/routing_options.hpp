// Options of every benchmark that say what is routed where.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/shuffle/config.hpp"

namespace shunt::cli {

/// --routing, --first-token, --map, --layer, --prune, --prune-by and --prune-level.
void add_routing_options(CLI::App& verb, ShuffleConfig& config);

}  // namespace shunt::cli
