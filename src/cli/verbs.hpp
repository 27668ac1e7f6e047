// The verbs of the command line, one file each.
#pragma once

#include <CLI/CLI.hpp>

namespace shunt::cli {

/// Each adds its verb, whose callback does the work and throws on failure.
void add_info(CLI::App& app);
void add_bench_layer(CLI::App& bench);
void add_bench_shuffle(CLI::App& bench);
void add_place(CLI::App& app);
void add_schedule(CLI::App& app);
void add_selftest(CLI::App& app);
void add_report(CLI::App& app);

}  // namespace shunt::cli
