#include "core/control_groups.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

namespace shunt {
namespace {

namespace fs = std::filesystem;

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

double number_in(const fs::path& path) {
  double value = 0;
  return std::ifstream(path) >> value ? value : kUnlimited;  // "max" does not parse: no limit
}

/// The files in which a version of control groups reports memory.
struct MemoryFiles {
  const char* mount;
  const char* limit;
  const char* usage;
  std::array<std::string_view, 2> file_caches;  ///< keys of memory.stat
};

constexpr MemoryFiles kVersion1 = {"sys/fs/cgroup/memory",
                                   "memory.limit_in_bytes",
                                   "memory.usage_in_bytes",
                                   {"total_inactive_file", "total_active_file"}};
constexpr MemoryFiles kVersion2 = {"sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file", "active_file"}};

/// Version 1 reports "no limit" as a number of at least this size.
constexpr double kNoLimitOfVersion1 = 0x1p62;

double file_cache_bytes(const fs::path& group, const MemoryFiles& files) {
  std::ifstream stat(group / "memory.stat");
  double sum = 0;
  std::string key;
  for (double value = 0; stat >> key >> value;)
    if (std::ranges::find(files.file_caches, key) != files.file_caches.end()) sum += value;
  return sum;
}

void narrow_memory(GroupLimits& limits, const fs::path& group, const MemoryFiles& files) {
  const double limit = number_in(group / files.limit);
  if (limit >= kNoLimitOfVersion1) return;
  const double usage = number_in(group / files.usage);
  const double room =
      usage == kUnlimited ? limit : std::clamp(limit - usage + file_cache_bytes(group, files), 0.0, limit);
  limits.memory_bytes = std::min(limits.memory_bytes, limit);
  limits.memory_room_bytes = std::min(limits.memory_room_bytes, room);
}

void narrow_cpus(GroupLimits& limits, double quota, double period) {
  if (quota > 0 && quota != kUnlimited && period > 0 && period != kUnlimited)  // -1 means no limit
    limits.cpus = std::min(limits.cpus, quota / period);
}

void narrow_cpus_of_version_2(GroupLimits& limits, const fs::path& group) {
  std::ifstream file(group / "cpu.max");
  double quota = 0, period = 0;
  if (file >> quota >> period) narrow_cpus(limits, quota, period);
}

bool lists(const std::string& controllers, const char* name) {
  return ("," + controllers + ",").find(std::string(",") + name + ",") != std::string::npos;
}

/// Calls visit(folder) for a group and its ancestors, up to the mounted root. A container may have a group path that is
/// not visible to it; then the mounted root is its own group.
template <class Visit>
void climb(const fs::path& mount, const std::string& path, const Visit& visit) {
  for (fs::path group = fs::path(path).relative_path();; group = group.parent_path()) {
    visit(mount / group);
    if (group.empty()) return;
  }
}

}  // namespace

GroupLimits read_group_limits(const fs::path& root) {
  GroupLimits limits{kUnlimited, kUnlimited, kUnlimited};
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string id, controllers, path;
       std::getline(groups, id, ':') && std::getline(groups, controllers, ':') && std::getline(groups, path);) {
    if (controllers.empty())
      climb(root / kVersion2.mount, path, [&](const fs::path& group) {
        narrow_memory(limits, group, kVersion2);
        narrow_cpus_of_version_2(limits, group);
      });
    if (lists(controllers, "memory"))
      climb(root / kVersion1.mount, path, [&](const fs::path& group) { narrow_memory(limits, group, kVersion1); });
    if (lists(controllers, "cpu"))
      climb(root / "sys/fs/cgroup/cpu", path, [&](const fs::path& group) {
        narrow_cpus(limits, number_in(group / "cpu.cfs_quota_us"), number_in(group / "cpu.cfs_period_us"));
      });
  }
  return limits;
}

}  // namespace shunt
