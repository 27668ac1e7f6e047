// Ranks of a benchmark: started by mpirun, or by the launcher of this process.
#pragma once

#include <string>

#include "bench/shuffle/config.hpp"
#include "shunt/environment.hpp"
#include "shunt/world.hpp"

namespace shunt::cli {

/// Why run_under_mpirun() can't work; empty if it can.
std::string why_no_mpirun();

/// Whether mpirun uses several machines: Open MPI's default hostfile is set, as tools/netcluster does.
bool mpirun_has_other_machines();

/// Runs the same command by mpirun on config.ranks ranks with `--world env`, so that shunt and MPI are measured in the
/// same processes. Returns mpirun's exit status. Throws Error(system) if its output can't be copied. A signal ends this
/// process only after mpirun and its ranks have ended and their files are removed.
int run_under_mpirun(const bench::ShuffleConfig& config);

/// For a rank that mpirun started: the kernel kills it when mpirun dies.
void die_with_launcher();

/// The ranks that the launcher of `--world env` has started. asked_ranks: the value of --ranks; 0: not given. Throws
/// Error(invalid_argument) if there is no launcher, or if it has started another number of ranks.
Environment::Launch launch_of(std::int32_t asked_ranks);

/// Joins the launcher's world, with config.nodes virtual nodes if all ranks are on one machine; sets config.nodes to
/// the world's number of nodes. Throws Error(unsupported) unless nodes are equally large runs of ranks.
World join_launched(bench::ShuffleConfig& config);

}  // namespace shunt::cli
