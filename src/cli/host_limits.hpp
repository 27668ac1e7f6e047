// What this host can take.
#pragma once

#include <cstdint>

namespace shunt::cli {

/// Ranks that may be started at once. More would mostly wait for a core, and silence is what lost ranks are known by.
constexpr std::int32_t kMostRanksPerCore = 32;
/// Throws Error(invalid_argument) unless there may be so many.
void check_ranks(std::int32_t num_ranks);

/// What can be taken without pushing others out, within the limit of this process's control group. Infinity where
/// unknown.
double available_memory_bytes();

}  // namespace shunt::cli
