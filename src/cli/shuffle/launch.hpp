// Starts the ranks of a benchmark.
#pragma once

#include <string>

#include "cli/shuffle/config.hpp"

namespace shunt::cli {

/// Replaces this process by mpirun running the same command on config.ranks ranks with `--world env`, so that shunt and
/// MPI are measured in the same processes. Returns why that can't be, if so.
std::string become_mpirun(const ShuffleConfig& config);

/// For a rank that mpirun started: ends with it.
void die_with_launcher();

}  // namespace shunt::cli
