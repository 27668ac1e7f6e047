// Whether a benchmark fits this host.
#pragma once

#include <string>

#include "cli/shuffle/config.hpp"

namespace shunt::cli {

/// Bytes that all ranks take together, at their peak. Expects a checked configuration.
double estimate_memory_bytes(const ShuffleConfig& config);

/// Of the ranks on this host. Throws Error(invalid_argument) that names the estimate, what is available, and the
/// options to lower.
void check_memory(const ShuffleConfig& config);

/// The same for an estimate of another benchmark; `options`: what to lower.
void check_memory(const ShuffleConfig& config, double bytes_of_all_ranks, const std::string& options);

}  // namespace shunt::cli
