// What this machine, or the container that this process is in, lets shunt have; from the files in which the system
// tells it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/control_groups.hpp"

namespace shunt::bench::selftest {

struct NumaNode {
  int index = 0;
  std::string cpus = {};  ///< as the system lists them: "0-15,32-47"
  double memory_bytes = 0;
};

/// What processes may have at most; infinity: no limit, none: unknown.
struct ProcessLimits {
  std::optional<double> locked_memory_bytes = std::nullopt;
  std::optional<double> open_files = std::nullopt;
  std::optional<double> processes = std::nullopt;
  std::optional<double> address_space_bytes = std::nullopt;
};

/// The file system for shared memory, /dev/shm.
struct SharedMemory {
  bool exists = false;
  bool is_writable = false;
  double bytes = 0;
  double free_bytes = 0;
};

struct MachineFacts {
  std::string cpu = {};  ///< its model; empty where unknown
  int cpus = 0;          ///< that run threads: of the machine
  int allowed_cpus = 0;  ///< of this process
  std::string allowed_list = {};
  std::vector<NumaNode> numa_nodes = {};
  double memory_bytes = 0;
  double available_bytes = 0;
  GroupLimits group = {};
  ProcessLimits limits = {};
  SharedMemory shared_memory = {};
};

/// root: of the files that tell: /proc, /sys and /dev.
MachineFacts read_machine_facts(const std::filesystem::path& root = "/");

/// How many a list such as "0-3,8" names; 0 for what is no list.
int count_of_list(const std::string& list);

}  // namespace shunt::bench::selftest
