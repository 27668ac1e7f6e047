// This machine as a cluster that steps can be scheduled for.
#pragma once

#include "core/cluster.hpp"

namespace shunt::cli {

/// One rank per core, up to eight; rates as `shunt info --measure` measures them, and that of a plain matrix product on
/// one core. Takes seconds.
Cluster measure_this_cluster();

}  // namespace shunt::cli
