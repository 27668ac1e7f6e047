// Open MPI's all-to-all, for the `mpi_alltoallv` baseline.
#pragma once

#include <memory>
#include <string>

#include "cli/shuffle/config.hpp"
#include "layer/all_to_all.hpp"

namespace shunt::cli {

/// Why the baseline can't run in this process; empty if it can.
std::string why_no_mpi();

/// Initialises MPI; call only if why_no_mpi() is empty. Ends MPI when destroyed.
std::shared_ptr<AllToAll> make_mpi_all_to_all(const ShuffleConfig& config);

}  // namespace shunt::cli
