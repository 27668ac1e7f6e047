// Options that verbs share, and what options that take a number accept.
#pragma once

#include <CLI/CLI.hpp>

#include "bench/shuffle/config.hpp"

namespace shunt::cli {

/// Checks the number options of all verbs: a value must be a whole number that the option's type holds, or a finite
/// real one. CLI11 alone reads '' as 0, -1 as the largest unsigned number, 010 as 8, and too large a number as the
/// largest.
void check_numbers(CLI::App& app);

/// --routing, --first-token, --map, --layer, --prune, --prune-by and --prune-level.
void add_routing_options(CLI::App& verb, bench::ShuffleConfig& config);

}  // namespace shunt::cli
