#include "bench/shuffle/config.hpp"

#include <algorithm>
#include <limits>

#include "bench/machine_limits.hpp"
#include "core/fail.hpp"
#include "shunt/expert_map_file.hpp"
#include "shunt/routing.hpp"

namespace shunt::bench {
namespace {

constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
// A limit because every token draws from all experts, and every rank counts rows for each.
constexpr std::int32_t kMostExperts = 1 << 16;

/// Upper bound of the rows that a rank sends or receives, for any routing. In floating point, to avoid overflow.
double most_rows_per_rank(const ShuffleConfig& config) {
  const auto tokens = static_cast<double>(config.tokens);
  const std::int32_t local_experts = config.most_local_experts();
  const double per_token = config.layout == Layout::padded ? local_experts : std::min(config.topk, local_experts);
  return std::max(tokens * config.topk, tokens * config.ranks * per_token);
}

}  // namespace

ExpertMap ShuffleConfig::read_map(const std::string& file) const {
  const PlacedLayers maps = read_maps(file);
  if (layer < 0 || static_cast<std::size_t>(layer) >= maps.layers.size())
    fail(ErrorCode::invalid_argument, "--layer {}: {} has layers 0 to {}", layer, file, maps.layers.size() - 1);
  return maps.layers[static_cast<std::size_t>(layer)];
}

void ShuffleConfig::load_map() {
  if (!map_file.empty()) placed = read_map(map_file);
}

void ShuffleConfig::check_map(const char* option, const std::string& file, const ExpertMap& map) const {
  if (map.num_ranks() != ranks)
    fail(ErrorCode::invalid_argument, "{} {}: for {} ranks, but there are {} (--ranks)", option, file, map.num_ranks(),
         ranks);
  if (map.num_experts() != experts)
    fail(ErrorCode::invalid_argument, "{} {}: for {} experts, but there are {} (--experts)", option, file,
         map.num_experts(), experts);
}

std::int32_t ShuffleConfig::most_local_experts() const {
  const ExpertMap all = map();
  std::int32_t most = 0;
  for (std::int32_t rank = 0; rank < ranks; ++rank) most = std::max(most, all.num_local(RankId(rank)));
  return most;
}

void ShuffleConfig::check() const {
  const auto demand = [](bool holds, const char* option, const std::string& expected) {
    if (!holds) fail(ErrorCode::invalid_argument, "{}: expected {}", option, expected);
  };
  check_ranks(ranks_here());
  demand(nodes >= 1 && nodes <= ranks, "--nodes", fmt::format("1 to {} (the number of ranks)", ranks));
  demand(tokens >= 0, "--tokens", "at least 0");
  const auto most_hidden = kMost / static_cast<std::int64_t>(size_of(expert_dtype()));
  demand(hidden >= 1 && hidden <= most_hidden, "--hidden", fmt::format("1 to {}", most_hidden));
  demand(experts >= 1 && experts <= kMostExperts, "--experts", fmt::format("1 to {}", kMostExperts));
  demand(topk >= 1 && topk <= std::min(experts, Routing::kMaxTopK), "--topk",
         fmt::format("1 to {} (experts, and at most {})", std::min(experts, Routing::kMaxTopK), Routing::kMaxTopK));
  const bool is_trace = routing.starts_with("trace:");
  demand(layer >= 0, "--layer", "at least 0");
  demand(layer == 0 || placed || is_trace, "--layer", "--map or --routing trace:FILE with it");
  if (placed) check_map("--map", map_file, *placed);
  demand(first_token >= 0, "--first-token", "at least 0");
  demand(first_token == 0 || is_trace, "--first-token", "--routing trace:FILE with it");
  demand(!prune.limit || *prune.limit >= 1, "--prune", "at least 1");
  demand(prune.limit || prune.by == "score", "--prune-by", "--prune with it");
  demand(prune.limit || prune.level == "ranks", "--prune-level", "--prune with it");
  demand(most_rows_per_rank(*this) <= kMost, "--tokens",
         fmt::format("at most {} rows per rank; with these --ranks, --experts and --topk a rank may get {:.0f}", kMost,
                     most_rows_per_rank(*this)));
  demand(iterations >= 1, "--iterations", "at least 1");
  demand(warmup >= 0, "--warmup", "at least 0");
  for (const std::string& system : systems)
    demand(system == "shunt" || system == "mpi_alltoallv" || system == "unfused" || system == "wire" ||
               system == "rotation",
           "--systems", fmt::format("shunt, mpi_alltoallv, unfused, wire or rotation, not '{}'", system));
  constexpr std::int32_t kMostRanksOnDevice = 32;
  const bool is_on_device = device != "cpu";
  demand(!is_on_device || ranks <= kMostRanksOnDevice, "--ranks",
         fmt::format("at most {} with --device cuda", kMostRanksOnDevice));
  for (const std::string& system : systems)
    demand(!is_on_device || system == "shunt" || system == "unfused", "--systems",
           fmt::format("shunt or unfused with --device cuda, not '{}'", system));
  demand(!low_latency || is_on_device, "--low-latency", "--device cuda with it");
  demand(!low_latency || graph > 0, "--low-latency", "--graph not 0 with it");
  demand(graph >= 0, "--graph", "at least 0");
  demand(graph == 0 || is_on_device, "--graph", "--device cuda with it");
  demand(sms >= 0, "--sms", "at least 0");
  demand(sms == 0 || is_on_device, "--sms", "--device cuda with it");
  demand(sms == 0 || layout != Layout::padded, "--sms",
         "another --layout than padded with it (--low-latency implies padded)");
  demand(wants("shunt"), "--systems", "shunt among them, because the others are compared with it");
}

bool ShuffleConfig::wants(const std::string& system) const {
  return std::find(systems.begin(), systems.end(), system) != systems.end();
}

}  // namespace shunt::bench
