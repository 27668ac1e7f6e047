// What this host can take.
#pragma once

#include <cstdint>
#include <filesystem>

namespace shunt::cli {

/// Ranks that may be started at once. More would mostly wait for a core, and silence is what lost ranks are known by.
constexpr std::int32_t kMostRanksPerCore = 32;
/// Throws Error(invalid_argument) unless there may be so many.
void check_ranks(std::int32_t num_ranks);

/// What can be taken without pushing others out, within the limits of this process's control group (v1 or v2) and of
/// those around it. Infinity where unknown. root: of the files that tell, /proc and /sys.
double available_memory_bytes(const std::filesystem::path& root = "/");

}  // namespace shunt::cli
