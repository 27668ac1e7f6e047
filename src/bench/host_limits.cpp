#include "bench/host_limits.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

#include "bench/machine_speed.hpp"
#include "bench/reference/plan.hpp"
#include "core/fail.hpp"
#include "shunt/machine.hpp"

namespace shunt::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kMostRanks = 1024;
constexpr double kUnknown = std::numeric_limits<double>::infinity();

double number_in(const fs::path& path) {
  double value = 0;
  return std::ifstream(path) >> value ? value : kUnknown;  // "max" is no number: no limit
}

double memory_available_to_all(const fs::path& root) {
  std::ifstream file(root / "proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("MemAvailable:")) return std::stod(line.substr(line.find(':') + 1)) * 1024;
  return kUnknown;
}

/// Where a version of control groups tells of memory.
struct GroupFiles {
  const char* mount;
  const char* limit;
  const char* usage;
  std::array<std::string_view, 2> file_caches;  ///< keys of memory.stat
};

constexpr GroupFiles kVersion1 = {"sys/fs/cgroup/memory",
                                  "memory.limit_in_bytes",
                                  "memory.usage_in_bytes",
                                  {"total_inactive_file", "total_active_file"}};
constexpr GroupFiles kVersion2 = {"sys/fs/cgroup", "memory.max", "memory.current", {"inactive_file", "active_file"}};

/// Part of the group's usage, but the system gives it up before it refuses memory.
double file_cache_bytes(const fs::path& group, const GroupFiles& files) {
  std::ifstream stat(group / "memory.stat");
  double sum = 0;
  std::string key;
  for (double value = 0; stat >> key >> value;)
    if (std::ranges::find(files.file_caches, key) != files.file_caches.end()) sum += value;
  return sum;
}

double room_in_group(const fs::path& group, const GroupFiles& files) {
  const double limit = number_in(group / files.limit);
  const double usage = number_in(group / files.usage);
  if (limit == kUnknown || usage == kUnknown) return limit;
  return std::clamp(limit - usage + file_cache_bytes(group, files), 0.0, limit);
}

/// Within this process's group and those around it, up to the one that is mounted. A container may know its group by a
/// path that it doesn't see; what it sees then is the group itself, mounted.
double room_in_groups(const fs::path& root) {
  double room = kUnknown;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string id, controllers, path;
       std::getline(groups, id, ':') && std::getline(groups, controllers, ':') && std::getline(groups, path);) {
    const bool is_version_1 = ("," + controllers + ",").find(",memory,") != std::string::npos;
    if (!is_version_1 && !controllers.empty()) continue;
    const GroupFiles& files = is_version_1 ? kVersion1 : kVersion2;
    for (fs::path group = fs::path(path).relative_path();; group = group.parent_path()) {
      room = std::min(room, room_in_group(root / files.mount / group, files));
      if (group.empty()) break;
    }
  }
  return room;
}

// Code, stacks and what MPI keeps per process; a mailbox per pair of ranks.
constexpr double kBytesPerRank = 24 << 20;
constexpr double kBytesPerPair = 8 << 10;
// Of one routed copy of a token, besides its rows: plans of all systems; and on every rank, what the verifier knows.
constexpr double kBytesPerCopy = 160, kVerifiedBytesPerCopy = sizeof(ReferenceRow), kVerifiedBytesPerUniqueRow = 64;
// Of one copy of an expert on one rank: maps, weights to draw by.
constexpr double kBytesPerExpert = 256;

/// Rows that shunt's dispatch writes, over all ranks.
double rows_of_shunt(const ShuffleConfig& config) {
  const double tokens = static_cast<double>(config.tokens) * config.ranks;
  switch (config.layout) {
    case Layout::expert_major: return tokens * config.topk;
    case Layout::token_unique: return tokens * std::min(config.topk, config.ranks);
    case Layout::padded: return std::max(tokens, 1.0 * config.ranks) * config.map().num_physical();
  }
  return 0;
}

double gib(double bytes) { return bytes / (1 << 30); }

}  // namespace

void check_ranks(std::int32_t num_ranks) {
  const std::int32_t most = std::min(kMostRanks, kMostRanksPerCore * Machine::detect().cores);
  if (num_ranks < 1 || num_ranks > most)
    fail(ErrorCode::invalid_argument, "--ranks {}: expected 1 to {} on this host ({} per core)", num_ranks, most,
         kMostRanksPerCore);
}

double available_memory_bytes(const std::filesystem::path& root) {
  return std::min(memory_available_to_all(root), room_in_groups(root));
}

// In floating point, as it must not overflow, whatever is asked for.
double estimate_memory_bytes(const ShuffleConfig& config) {
  const double ranks = config.ranks;
  const double tokens = static_cast<double>(config.tokens) * ranks;
  const double copies = tokens * config.topk;
  const double row_bytes = static_cast<double>(config.hidden) * static_cast<double>(size_of(config.expert_dtype()));

  // Rows and the experts' outputs of shunt, tokens and results; a baseline has both once per kind of store, and buffers
  // to send from and to receive into.
  double rows = 2 * rows_of_shunt(config) + 2 * tokens;
  const bool is_on_host = config.device == "cpu";  // else outputs are verified here, one system after the other
  if (is_on_host && config.wants("mpi_alltoallv") && config.world != "inproc") rows += 6 * copies + 2 * tokens;
  if (is_on_host && config.wants("unfused")) rows += 6 * copies + 2 * tokens;

  // Every rank knows every rank's routing and counts.
  const double verified =
      kVerifiedBytesPerCopy * copies +
      (config.layout == Layout::token_unique ? kVerifiedBytesPerUniqueRow * rows_of_shunt(config) : 0);
  const double routing = ranks * (copies * (sizeof(std::int32_t) + sizeof(float) + sizeof(PhysicalId)) + verified) +
                         copies * kBytesPerCopy;
  const double experts = ranks * config.map().num_physical() * (kBytesPerExpert + ranks * 4 * sizeof(std::int32_t));
  const double ceilings = is_on_host ? ranks * static_cast<double>(Ceilings::bytes_per_rank(config.ranks)) : 0;
  return rows * row_bytes + routing + experts + ceilings + ranks * (kBytesPerRank + ranks * kBytesPerPair);
}

void check_memory(const ShuffleConfig& config) {
  check_memory(config, estimate_memory_bytes(config),
               std::string("--tokens, --hidden, --topk, --experts or --ranks") +
                   (config.systems.size() > 1 ? ", or name fewer --systems" : ""));
}

void check_memory(const ShuffleConfig& config, double bytes_of_all_ranks, const std::string& options) {
  const double needed = bytes_of_all_ranks * config.ranks_here() / config.ranks;
  const double available = available_memory_bytes();
  if (needed > available)
    fail(ErrorCode::invalid_argument,
         "{} rank{} would take about {:.1f} GiB of host memory, of which {:.1f} are available: lower {}",
         config.ranks_here(), config.ranks_here() == 1 ? "" : "s", gib(needed), gib(available), options);
}

}  // namespace shunt::bench
