// Whether a benchmark fits this host.
#pragma once

#include "cli/shuffle/config.hpp"

namespace shunt::cli {

/// Bytes that all ranks take together, at their peak. Expects a checked configuration.
double estimate_memory_bytes(const ShuffleConfig& config);

/// Of the ranks on this host. Throws Error(invalid_argument) that names the estimate, what is available, and the
/// options to lower.
void check_memory(const ShuffleConfig& config);

}  // namespace shunt::cli
