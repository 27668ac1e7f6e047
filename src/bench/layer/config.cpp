#include "bench/layer/config.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/fail.hpp"
#include "layer/experts.hpp"
#include "layer/moe_layer.hpp"

namespace shunt::bench {
namespace {

void check_system(const std::string& name) {
  try {
    (void)parse_layer_way(name);
  } catch (const Error& error) {
    fail(ErrorCode::invalid_argument, "--systems {}", error.what());
  }
}

}  // namespace

void LayerConfig::load_maps() {
  shuffle.load_map();
  if (!replica_map_file.empty()) replicas = shuffle.read_map(replica_map_file);
}

ShuffleConfig LayerConfig::unplaced() const {
  ShuffleConfig config = shuffle;
  config.placed.reset();
  config.prune = {};
  return config;
}

void LayerConfig::check() const {
  const auto demand = [](bool holds, const char* option, const std::string& expected) {
    if (!holds) fail(ErrorCode::invalid_argument, "{}: expected {}", option, expected);
  };
  shuffle.check();
  demand(shuffle.layout != Layout::padded, "--layout", "expert_major or token_unique");
  demand(shuffle.tokens >= 1, "--tokens", "at least 1");
  constexpr std::int64_t kMostFfn = 1 << 20;
  constexpr std::int32_t kMostChunks = 1024;
  demand(verified >= 1, "--verify", "at least 1");
  if (is_on_device()) {
    demand(shuffle.dtype != fp8_e4m3, "--dtype", "f32, bf16 or f16");
    demand(shuffle.hidden % 8 == 0, "--hidden", "a multiple of 8");
    demand(ffn >= 8 && ffn <= kMostFfn && ffn % 8 == 0, "--ffn", fmt::format("a multiple of 8 up to {}", kMostFfn));
    const ExpertMap map = shuffle.map();
    for (std::int32_t rank = 0; rank < shuffle.ranks; ++rank)
      demand(map.num_local(RankId(rank)) > 0, shuffle.map_file.empty() ? "--experts" : "--map",
             "at least one per rank");
    demand(chunks >= 0 && chunks <= kMostChunks, "--chunks", fmt::format("0 to {}", kMostChunks));
    demand(chunks == 0 || shuffle.layout == Layout::token_unique, "--chunks", "--layout token_unique with it");
    return;
  }
  if (replicas) {
    shuffle.check_map("--replica-map", replica_map_file, *replicas);
    if (!replicas->has_replicas())
      fail(ErrorCode::invalid_argument, "--replica-map {}: no expert of layer {} has a second copy", replica_map_file,
           shuffle.layer);
  }
  demand(shuffle.dtype == f32 || shuffle.dtype == bf16, "--dtype", "f32 or bf16 on the CPU");
  demand(ffn >= 1 && ffn <= kMostFfn, "--ffn", fmt::format("1 to {}", kMostFfn));
  demand(chunks == 0, "--chunks", "--device cuda with it");
  demand(!systems.empty(), "--systems", "at least one");
  for (std::size_t i = 0; i < systems.size(); ++i) {
    check_system(systems[i]);
    demand(std::find(systems.begin(), systems.begin() + static_cast<std::ptrdiff_t>(i), systems[i]) ==
               systems.begin() + static_cast<std::ptrdiff_t>(i),
           "--systems", fmt::format("'{}' once", systems[i]));
  }
}

double LayerConfig::host_memory_bytes() const {
  const double ranks = shuffle.ranks;
  const double tokens = static_cast<double>(shuffle.tokens) * ranks;
  const double copies = tokens * shuffle.topk;
  // Rows, experts' outputs, tokens, results and a copy of the first result; the conventional way also has buffers to
  // send and to receive.
  double rows = tokens;
  const int num_maps = 1 + (shuffle.placed ? 1 : 0) + (replicas ? 1 : 0);
  std::vector<std::string> ways = systems;
  ways.resize(systems.size() + static_cast<std::size_t>(num_maps - 1 + (shuffle.prune.limit ? 1 : 0)), systems.back());
  for (const std::string& system : ways) {
    rows += 2 * tokens;
    if (system == "conventional") rows += 4 * copies;
    if (system == "expert_major") rows += 2 * copies;
    if (system == "token_unique")
      rows += 2 * tokens * std::min(shuffle.topk, shuffle.ranks) +
              std::min(copies, 1.5 * static_cast<double>(ExpertsOptions().rows_per_expert) * shuffle.experts);
  }
  // `dense` products and block outputs have at most this many rows.
  constexpr double kDenseRows = 4096;
  const double hidden = static_cast<double>(shuffle.hidden);
  const double inner = static_cast<double>(ffn);
  const double workspace = ranks * std::min(kDenseRows, copies) * (2 * hidden + 2 * inner);
  // A rank keeps the experts of all its maps; 4 more per rank for `dense` and verification.
  const double weights = 3 * (shuffle.experts * num_maps + 4 * ranks) * hidden * inner;
  constexpr double kBytesPerRank = 64 << 20;
  constexpr double kBytesPerCopy = 64;
  constexpr double kBytesPerRoutedCopy = 24;  // every rank holds every rank's routing, with and without pruning
  return (rows * hidden + workspace + weights) * static_cast<double>(size_of(shuffle.dtype)) +
         copies * (kBytesPerCopy + ranks * kBytesPerRoutedCopy) + ranks * kBytesPerRank;
}

std::int32_t LayerConfig::num_chunks() const {
  if (chunks > 0) return chunks;
  const std::int64_t rows_per_expert = shuffle.tokens * shuffle.ranks * shuffle.topk / shuffle.map().num_physical();
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(rows_per_expert / 1024, 2, 8));
}

std::vector<LayerVariant> make_variants(const LayerConfig& config, const Workload& workload, std::size_t rank) {
  std::vector<LayerVariant> variants;
  const auto add = [&](const std::string& name, LayerWay way, const ExpertMap& map, const Workload& placed) {
    variants.push_back({name, way, map, placed.routing(rank), placed.figures(), placed.pruning()});
  };
  ExpertMap map = config.unplaced().map();
  for (const std::string& system : config.systems) add(system, parse_layer_way(system), map, workload);
  const LayerWay way = variants.back().way;
  const auto add_placed = [&](const char* name, const PruneRequest& prune) {
    add(name, way, map, workload.with_map(map, prune));
  };
  if (config.shuffle.placed) {
    map = *config.shuffle.placed;
    add_placed("map", {});
  }
  if (config.replicas) {
    map = *config.replicas;
    add_placed("replicas", {});
  }
  if (config.shuffle.prune.limit) add_placed("pruned", config.shuffle.prune);
  return variants;
}

LayerDemand LayerDemand::of(const ShuffleConfig& config, const Workload& workload, std::size_t rank,
                            std::int64_t tile_rows) {
  const ExpertMap map = config.map();
  std::vector<std::int64_t> rows_of_expert(static_cast<std::size_t>(map.num_physical()));
  for (std::size_t source = 0; source < static_cast<std::size_t>(config.ranks); ++source)
    for (const PhysicalId expert : workload.routing(source).copies)
      if (expert.valid()) ++rows_of_expert[expert.index()];

  const std::int64_t rows = std::accumulate(rows_of_expert.begin(), rows_of_expert.end(), std::int64_t{0});
  if (rows == 0) fail(ErrorCode::invalid_argument, "--routing {}: no token has an expert", config.routing);

  std::vector<std::int64_t> aligned(static_cast<std::size_t>(config.ranks));
  for (std::size_t expert = 0; expert < rows_of_expert.size(); ++expert)
    aligned[map.rank(PhysicalId(expert)).index()] += (rows_of_expert[expert] + tile_rows - 1) / tile_rows * tile_rows;
  return {.rows = rows,
          .most_rows = workload.most_rows_of_a_rank(false),
          .aligned_rows = aligned[rank],
          .most_aligned_rows = *std::max_element(aligned.begin(), aligned.end()),
          .most_unique_rows = workload.most_rows_of_a_rank(true)};
}

}  // namespace shunt::bench
