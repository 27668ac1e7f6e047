// What the control groups of this process (v1 or v2), and those around them, let it have.
#pragma once

#include <filesystem>

namespace shunt {

/// Each is infinity where no group says anything.
struct GroupLimits {
  double memory_bytes;
  /// What is left of it. Caches of files count as free, as the system gives them up before it refuses memory.
  double memory_room_bytes;
  double cpus;  ///< of time, as in 1.5
};

/// root: of the files that tell, /proc and /sys.
GroupLimits read_group_limits(const std::filesystem::path& root = "/");

}  // namespace shunt
