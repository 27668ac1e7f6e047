#include "bench/machine_limits.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "bench/machine_speed.hpp"
#include "bench/reference/plan.hpp"
#include "core/control_groups.hpp"
#include "core/fail.hpp"
#include "shunt/machine.hpp"

namespace shunt::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kMostRanks = 1024;
constexpr double kUnknown = std::numeric_limits<double>::infinity();

double memory_available_to_all(const fs::path& root) {
  std::ifstream file(root / "proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("MemAvailable:")) return std::stod(line.substr(line.find(':') + 1)) * 1024;
  return kUnknown;
}

// Per rank: code, stacks and MPI's memory. Per pair of ranks: a mailbox.
constexpr double kBytesPerRank = 24 << 20;
constexpr double kBytesPerPair = 8 << 10;
// Per routed copy of a token, besides its rows: plans of all systems, and on every rank the verifier's lists.
constexpr double kBytesPerCopy = 160, kVerifiedBytesPerCopy = sizeof(ReferenceRow), kVerifiedBytesPerUniqueRow = 64;
// Per copy of an expert on one rank: maps, weights of the routing model.
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
    fail(ErrorCode::invalid_argument, "--ranks {}: expected 1 to {} on this machine ({} per core)", num_ranks, most,
         kMostRanksPerCore);
}

double available_memory_bytes(const std::filesystem::path& root) {
  return std::min(memory_available_to_all(root), read_group_limits(root).memory_room_bytes);
}

// In floating point, because it must not overflow for any input.
double estimate_memory_bytes(const ShuffleConfig& config) {
  const double ranks = config.ranks;
  const double tokens = static_cast<double>(config.tokens) * ranks;
  const double copies = tokens * config.topk;
  const double row_bytes = static_cast<double>(config.hidden) * static_cast<double>(size_of(config.expert_dtype()));

  // shunt: rows, experts' outputs, tokens and results. A baseline has these once per kind of store, and buffers to send
  // and to receive.
  double rows = 2 * rows_of_shunt(config) + 2 * tokens;
  const bool is_on_host =
      config.device == "cpu";  // on a device, systems are verified in host memory one after the other
  if (is_on_host && config.wants("mpi_alltoallv") && config.world != "inproc") rows += 6 * copies + 2 * tokens;
  if (is_on_host && config.wants("unfused")) rows += 6 * copies + 2 * tokens;

  // Every rank holds every rank's routing and counts.
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
