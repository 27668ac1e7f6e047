// What `shunt bench layer` is asked to measure, and what that comes to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/shuffle/config.hpp"
#include "bench/shuffle/workload.hpp"
#include "layer/moe_layer.hpp"
#include "shunt/expert_map.hpp"

namespace shunt::bench {

struct LayerConfig {
  ShuffleConfig shuffle;      ///< ranks, tokens, routing, layout: what is as in `bench shuffle`
  std::int64_t ffn = 1024;    ///< elements between an expert's two products
  std::int32_t chunks = 0;    ///< `token_unique`: runs of rows that take turns in one buffer; 0: see num_chunks()
  std::int64_t verified = 2;  ///< tokens per rank that are compared with what plain loops compute
  /// On the host: ways to compute the layer (layer/moe_layer.hpp); the others are compared with the first.
  std::vector<std::string> systems = {"conventional", "expert_major", "token_unique"};
  /// On the host: a second file of expert maps, with copies of experts; empty: none.
  std::string replica_map_file;
  std::optional<ExpertMap> replicas;  ///< of replica_map_file

  /// Reads the maps, as ShuffleConfig::load_map().
  void load_maps();
  /// Throws Error(invalid_argument) that names the option.
  void check() const;

  /// What was asked for, or as many as leave each expert about 1024 rows of a run, but 2 to 8: shorter runs take more
  /// time than they are worth (docs/performance.md).
  [[nodiscard]] std::int32_t num_chunks() const;

  /// Of the experts' products: three matrices, a multiply and an add each.
  [[nodiscard]] double flop(std::int64_t rows) const {
    return 6.0 * static_cast<double>(rows) * static_cast<double>(shuffle.hidden) * static_cast<double>(ffn);
  }

  [[nodiscard]] bool is_on_device() const { return shuffle.device != "cpu"; }

  /// Bytes that all ranks on the host take together, at their peak. Expects a checked configuration.
  [[nodiscard]] double host_memory_bytes() const;

  /// What all variants on the host start from: experts in order, tokens as they are.
  [[nodiscard]] ShuffleConfig unplaced() const;
};

/// A way to compute the layer, under a map of its own, with a routing of its own: variants may differ in any of them.
struct LayerVariant {
  std::string name;
  LayerWay way;
  ExpertMap map;        ///< any: experts may have copies, and ranks differ in how many they hold
  RankRouting routing;  ///< of this rank
  RoutingFigures figures;
  std::optional<PruningFigures> pruning;
};

/// First one per --systems, in that order, on experts in order. Then the last of these again, each with one thing more
/// than the variant before: `map` (--map), `replicas` (--replica-map instead), `pruned` (--prune, under the last map).
/// workload: of config.unplaced().
std::vector<LayerVariant> make_variants(const LayerConfig& config, const Workload& workload, std::size_t rank);

/// How many rows a workload brings to the experts of a rank.
struct LayerDemand {
  std::int64_t rows = 0;               ///< one per (token, expert), over all ranks
  std::int64_t most_rows = 0;          ///< … of any rank
  std::int64_t aligned_rows = 0;       ///< … of this rank, with every expert's filled up to whole tiles
  std::int64_t most_aligned_rows = 0;  ///< … of any rank
  std::int64_t most_unique_rows = 0;   ///< one per (token, rank), of any rank

  /// Throws Error(invalid_argument) if no token has an expert.
  static LayerDemand of(const ShuffleConfig& config, const Workload& workload, std::size_t rank,
                        std::int64_t tile_rows);
};

}  // namespace shunt::bench
