// Starts the ranks of a benchmark, by mpirun or by the launcher that started this process.
#pragma once

#include <string>

#include "bench/shuffle/config.hpp"
#include "shunt/environment.hpp"
#include "shunt/world.hpp"

namespace shunt::cli {

/// Empty if run_under_mpirun() can work.
std::string why_no_mpirun();

/// Whether mpirun has been told of other hosts (Open MPI's default hostfile), as tools/netcluster does.
bool mpirun_knows_hosts();

/// Runs the same command by mpirun on config.ranks ranks with `--world env`, so that shunt and MPI are measured in the
/// same processes. Returns mpirun's exit status. Throws Error(system) if its output can't be passed on. A signal that
/// asks this process to end does so after mpirun and its ranks have ended and their files are gone.
int run_under_mpirun(const bench::ShuffleConfig& config);

/// For a rank that mpirun started: ends with it.
void die_with_launcher();

/// What the launcher of `--world env` has started. asked_ranks: of --ranks; 0: not given. Throws
/// Error(invalid_argument) if there is no launcher, or one of other ranks.
Environment::Launch launch_of(std::int32_t asked_ranks);

/// Joins the launcher's world, with config.nodes virtual nodes where all ranks are on one host; sets config.nodes to
/// what the world has. Throws Error(unsupported) unless nodes are equally large runs of ranks.
World join_launched(bench::ShuffleConfig& config);

}  // namespace shunt::cli
