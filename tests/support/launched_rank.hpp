// Ranks that join by the environment, as those of any launcher do.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "shunt/world.hpp"
#include "support/child_process.hpp"

namespace shunt::test {

struct Launch {
  std::int32_t rank = 0;
  std::int32_t size = 1;
  std::string job;
  int join_ms = 15'000;
};

/// A process that makes a world and runs the body on it.
inline ChildProcess start_rank(const Launch& launch, const std::function<void(World&)>& body) {
  return ChildProcess([&] {
    setenv("SHUNT_RANK", std::to_string(launch.rank).c_str(), 1);
    setenv("SHUNT_WORLD_SIZE", std::to_string(launch.size).c_str(), 1);
    setenv("SHUNT_JOB", (std::to_string(getppid()) + launch.job).c_str(), 1);
    setenv("SHUNT_LIVENESS_MS", "1000", 1);
    setenv("SHUNT_JOIN_MS", std::to_string(launch.join_ms).c_str(), 1);
    World world = World::from_environment();
    body(world);
  });
}

}  // namespace shunt::test
