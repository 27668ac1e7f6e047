#include "cli/shuffle/memory_estimate.hpp"

#include <algorithm>

#include "cli/ceilings.hpp"
#include "cli/host_limits.hpp"
#include "cli/plural.hpp"
#include "core/fail.hpp"

namespace shunt::cli {
namespace {

// Code, stacks and what MPI keeps per process; a mailbox per pair of ranks.
constexpr double kBytesPerRank = 24 << 20;
constexpr double kBytesPerPair = 8 << 10;
// Of one routed copy of a token, besides its rows: plans of all systems, and the verifier's lists.
constexpr double kBytesPerCopy = 160;
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
  const double routing =
      ranks * copies * (sizeof(std::int32_t) + sizeof(float) + sizeof(PhysicalId)) + copies * kBytesPerCopy;
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
         "{} would take about {:.1f} GiB of host memory, of which {:.1f} are available: lower {}",
         plural(config.ranks_here(), "rank"), gib(needed), gib(available), options);
}

}  // namespace shunt::cli
