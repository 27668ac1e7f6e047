// The verbs of the command line, one file each, and the options that they share.
#pragma once

#include <CLI/CLI.hpp>

#include "bench/shuffle/config.hpp"

namespace shunt::cli {

/// Each function adds its verb, whose callback does the work and throws on failure.
void add_info(CLI::App& app);
void add_bench_layer(CLI::App& bench);
void add_bench_shuffle(CLI::App& bench);
void add_bench_train(CLI::App& bench);
void add_place(CLI::App& app);
void add_schedule(CLI::App& app);
void add_selftest(CLI::App& app);
void add_report(CLI::App& app);
void add_train(CLI::App& app);

/// Adds --routing, --first-token, --map, --layer, --prune, --prune-by and --prune-level.
void add_routing_options(CLI::App& verb, bench::ShuffleConfig& config);

/// Makes number options of all verbs accept only whole numbers in the range of the option's type, or finite reals.
/// CLI11 alone reads '' as 0, -1 as the largest unsigned number, 010 as 8, and too large a number as the largest.
void check_numbers(CLI::App& app);

}  // namespace shunt::cli
