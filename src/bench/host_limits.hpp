// What this host can take, and what a benchmark takes of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "bench/shuffle/config.hpp"

namespace shunt::bench {

/// Ranks that may be started at once. More would mostly wait for a core, and silence is what lost ranks are known by.
constexpr std::int32_t kMostRanksPerCore = 32;
/// Throws Error(invalid_argument) unless there may be so many.
void check_ranks(std::int32_t num_ranks);

/// What can be taken without pushing others out, within the limits of this process's control group (v1 or v2) and of
/// those around it. Infinity where unknown. root: of the files that tell, /proc and /sys.
double available_memory_bytes(const std::filesystem::path& root = "/");

/// Bytes that all ranks take together, at their peak. Expects a checked configuration.
double estimate_memory_bytes(const ShuffleConfig& config);

/// Of the ranks on this host. Throws Error(invalid_argument) that names the estimate, what is available, and the
/// options to lower.
void check_memory(const ShuffleConfig& config);

/// The same for an estimate of another benchmark; `options`: what to lower.
void check_memory(const ShuffleConfig& config, double bytes_of_all_ranks, const std::string& options);

}  // namespace shunt::bench
