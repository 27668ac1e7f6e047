#include "bench/selftest/machine_facts.hpp"

#include <sys/statvfs.h>
#include <unistd.h>

#include <limits>
#include <sstream>

#include "bench/selftest/system_files.hpp"
#include "core/comma_list.hpp"

namespace shunt::bench::selftest {
namespace {

namespace fs = std::filesystem;

constexpr double kKib = 1024;

/// What stands behind "key:" in a file of such lines, without leading blanks; empty where it does not.
std::string value_of(const fs::path& file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const auto end = line.find_last_not_of(" \t", colon - 1);
    if (end == std::string::npos || line.compare(0, end + 1, key) != 0) continue;
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

double kilobytes_in(const std::string& text) {
  double value = 0;
  std::istringstream(text) >> value;
  return value * kKib;
}

/// Of "Max open files   1024   4096   files": the first, which holds now.
std::optional<double> limit_of(const fs::path& root, const std::string& name) {
  std::ifstream lines(root / "proc/self/limits");
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream words(line.substr(name.size()));
    std::string soft;
    words >> soft;
    if (soft == "unlimited") return std::numeric_limits<double>::infinity();
    double value = 0;
    if (std::istringstream(soft) >> value) return value;
  }
  return std::nullopt;
}

std::vector<NumaNode> numa_nodes_of(const fs::path& root) {
  std::vector<NumaNode> nodes;
  const fs::path folder = root / "sys/devices/system/node";
  for (const std::string& name : names_in(folder)) {
    const auto index = name.starts_with("node") ? number_in(name.substr(4)) : std::nullopt;
    if (!index) continue;
    const std::string memory = value_of(folder / name / "meminfo", "Node " + std::to_string(*index) + " MemTotal");
    nodes.push_back({*index, line_of(folder / name / "cpulist"), kilobytes_in(memory)});
  }
  std::ranges::sort(nodes, {}, &NumaNode::index);
  return nodes;
}

SharedMemory shared_memory_of(const fs::path& root) {
  const std::string folder = root / "dev/shm";
  SharedMemory shared;
  struct statvfs status {};
  if (statvfs(folder.c_str(), &status) != 0) return shared;
  const auto block = static_cast<double>(status.f_frsize);
  shared.exists = true;
  shared.is_writable = access(folder.c_str(), W_OK | X_OK) == 0 && (status.f_flag & ST_RDONLY) == 0;
  shared.bytes = static_cast<double>(status.f_blocks) * block;
  shared.free_bytes = static_cast<double>(status.f_bavail) * block;
  return shared;
}

}  // namespace

int count_of_list(const std::string& list) {
  int count = 0;
  for (const std::string& item : items_of(list)) {
    const auto dash = item.find('-');
    const auto first = number_in(item), last = dash == std::string::npos ? first : number_in(item.substr(dash + 1));
    if (!first || !last || *last < *first) return 0;
    count += *last - *first + 1;
  }
  return count;
}

MachineFacts read_machine_facts(const fs::path& root) {
  MachineFacts facts;
  facts.cpu = value_of(root / "proc/cpuinfo", "model name");
  facts.cpus = count_of_list(line_of(root / "sys/devices/system/cpu/online"));
  facts.allowed_list = value_of(root / "proc/self/status", "Cpus_allowed_list");
  facts.allowed_cpus = count_of_list(facts.allowed_list);
  facts.numa_nodes = numa_nodes_of(root);
  facts.memory_bytes = kilobytes_in(value_of(root / "proc/meminfo", "MemTotal"));
  facts.available_bytes = kilobytes_in(value_of(root / "proc/meminfo", "MemAvailable"));
  facts.group = read_group_limits(root);
  facts.limits = {.locked_memory_bytes = limit_of(root, "Max locked memory"),
                  .open_files = limit_of(root, "Max open files"),
                  .processes = limit_of(root, "Max processes"),
                  .address_space_bytes = limit_of(root, "Max address space")};
  facts.shared_memory = shared_memory_of(root);
  return facts;
}

}  // namespace shunt::bench::selftest
