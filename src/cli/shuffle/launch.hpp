// Starts the ranks of a benchmark.
#pragma once

#include <string>

#include "cli/shuffle/config.hpp"

namespace shunt::cli {

/// Empty if run_under_mpirun() can work.
std::string why_no_mpirun();

/// Whether mpirun has been told of other hosts (Open MPI's default hostfile), as tools/netcluster does.
bool mpirun_knows_hosts();

/// Runs the same command by mpirun on config.ranks ranks with `--world env`, so that shunt and MPI are measured in the
/// same processes. Returns mpirun's exit status. Throws Error(system) if its output can't be passed on.
int run_under_mpirun(const ShuffleConfig& config);

/// For a rank that mpirun started: ends with it.
void die_with_launcher();

}  // namespace shunt::cli
