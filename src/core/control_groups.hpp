// Resource limits of this process by control groups (v1 or v2), including those of enclosing groups.
#pragma once

#include <filesystem>

namespace shunt {

/// Infinity if no group has the limit.
struct GroupLimits {
  double memory_bytes;
  /// The part of it that is free. Caches of files count as free, because the system drops them before it refuses
  /// memory.
  double memory_room_bytes;
  double cpus;  ///< as CPU time per time, such as 1.5
};

/// root: the folder that contains /proc and /sys.
GroupLimits read_group_limits(const std::filesystem::path& root = "/");

}  // namespace shunt
