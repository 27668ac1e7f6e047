// How many multiprocessors ranks need that wait for each other there.
#pragma once

#include <cstdint>

namespace shunt::cli {

/// Blocks that wait may have this many threads, and blocks of what others wait for up to kMostThreads.
inline constexpr std::int32_t kThreadsOfPlans = 512;
inline constexpr std::int32_t kMostThreads = 1024;

/// Such that all ranks but one may wait, spread evenly, and leave room everywhere for what that one has to do.
constexpr std::int32_t least_sms(std::int32_t ranks, std::int32_t threads_that_wait, std::int32_t threads_per_sm) {
  const std::int32_t room = threads_per_sm - kMostThreads;
  return ranks == 1 ? 1 : ((ranks - 1) * threads_that_wait + room - 1) / room;
}

}  // namespace shunt::cli
