#include "cli/host_limits.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "core/fail.hpp"
#include "shunt/machine.hpp"

namespace shunt::cli {
namespace {

constexpr std::int32_t kMostRanks = 1024;
constexpr double kUnknown = std::numeric_limits<double>::infinity();

double number_in(const std::string& path) {
  double value = 0;
  return std::ifstream(path) >> value ? value : kUnknown;  // "max" is no number: no limit
}

double memory_available_to_all() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("MemAvailable:")) return std::stod(line.substr(line.find(':') + 1)) * 1024;
  return kUnknown;
}

/// Of cgroup v2, where a group is bound by its parents too, or of v1 as a container sees it.
double control_group_limit() {
  double limit = number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes");
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::/")) continue;
    for (std::string group = line.substr(3); !group.empty(); group.resize(group.rfind('/')))
      limit = std::min(limit, number_in("/sys/fs/cgroup" + group + "/memory.max"));
  }
  return std::min(limit, number_in("/sys/fs/cgroup/memory.max"));
}

}  // namespace

void check_ranks(std::int32_t num_ranks) {
  const std::int32_t most = std::min(kMostRanks, kMostRanksPerCore * Machine::detect().cores);
  if (num_ranks < 1 || num_ranks > most)
    fail(ErrorCode::invalid_argument, "--ranks {}: expected 1 to {} on this host ({} per core)", num_ranks, most,
         kMostRanksPerCore);
}

double available_memory_bytes() { return std::min(memory_available_to_all(), control_group_limit()); }

}  // namespace shunt::cli
