// Limits of this machine on ranks and memory, and the needs of a benchmark.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "bench/shuffle/config.hpp"

namespace shunt::bench {

/// Most ranks per core. More ranks would wait so long for a core that they could be taken for lost.
constexpr std::int32_t kMostRanksPerCore = 32;
/// Throws Error(invalid_argument) if this machine can't run that many ranks.
void check_ranks(std::int32_t num_ranks);

/// Available memory within the limits of this process's control group (v1 or v2) and its ancestors. Infinity if
/// unknown. root: parent folder of /proc and /sys.
double available_memory_bytes(const std::filesystem::path& root = "/");

/// Peak bytes of all ranks together. Expects a checked configuration.
double estimate_memory_bytes(const ShuffleConfig& config);

/// Throws Error(invalid_argument) if the ranks on this machine need more memory than is available. The message names
/// the estimate, the available memory and the options to lower.
void check_memory(const ShuffleConfig& config);

/// The same with an estimate of another benchmark. options: the options to lower.
void check_memory(const ShuffleConfig& config, double bytes_of_all_ranks, const std::string& options);

}  // namespace shunt::bench
