// The options of `shunt bench layer`, the variants to measure, and their sizes.
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
  ShuffleConfig shuffle;      ///< options shared with `bench shuffle`: ranks, tokens, routing, layout
  std::int64_t ffn = 1024;    ///< elements between an expert's two products
  std::int32_t chunks = 0;    ///< `token_unique`: runs of rows that use one buffer in turn; 0: see num_chunks()
  std::int64_t verified = 2;  ///< tokens per rank that are compared with plain loops
  /// In host memory: ways to compute the layer (layer/moe_layer.hpp); speedups are over the first.
  std::vector<std::string> systems = {"conventional", "expert_major", "token_unique"};
  /// In host memory: a second file of expert maps, with copies of experts; empty: none.
  std::string replica_map_file;
  std::optional<ExpertMap> replicas;  ///< the layer's map in replica_map_file

  /// Reads the maps, like ShuffleConfig::load_map().
  void load_maps();
  /// Throws Error(invalid_argument) that names the option.
  void check() const;

  /// `chunks` if it is set; otherwise 2 to 8, so that each expert has about 1024 rows per run. Shorter runs cost more
  /// time (docs/performance.md).
  [[nodiscard]] std::int32_t num_chunks() const;

  /// Operations of the experts' products: three matrices, a multiply and an add per element.
  [[nodiscard]] double flop(std::int64_t rows) const {
    return 6.0 * static_cast<double>(rows) * static_cast<double>(shuffle.hidden) * static_cast<double>(ffn);
  }

  [[nodiscard]] bool is_on_device() const { return shuffle.device != "cpu"; }

  /// Peak bytes of host memory of all ranks together. Expects a checked configuration.
  [[nodiscard]] double host_memory_bytes() const;

  /// The configuration without map and pruning, which all variants in host memory start from.
  [[nodiscard]] ShuffleConfig unplaced() const;
};

/// A way to compute the layer, with its own map and routing.
struct LayerVariant {
  std::string name;
  LayerWay way;
  ExpertMap map;        ///< experts may have copies, and ranks may hold different numbers of experts
  RankRouting routing;  ///< this rank's
  RoutingFigures figures;
  std::optional<PruningFigures> pruning;
};

/// First one variant per --systems, with experts in order. Then the last system again with one change more each: `map`
/// (--map), `replicas` (--replica-map instead), `pruned` (--prune, with the last map). workload: made from
/// config.unplaced().
std::vector<LayerVariant> make_variants(const LayerConfig& config, const Workload& workload, std::size_t rank);

/// Numbers of rows that a workload brings to experts.
struct LayerDemand {
  std::int64_t rows = 0;               ///< one per (token, expert), over all ranks
  std::int64_t most_rows = 0;          ///< the most of any rank
  std::int64_t aligned_rows = 0;       ///< of this rank, with every expert's rows padded to whole tiles
  std::int64_t most_aligned_rows = 0;  ///< the most of any rank, padded to whole tiles
  std::int64_t most_unique_rows = 0;   ///< the most of any rank, one per (token, rank)

  /// Throws Error(invalid_argument) if no token has an expert.
  static LayerDemand of(const ShuffleConfig& config, const Workload& workload, std::size_t rank,
                        std::int64_t tile_rows);
};

}  // namespace shunt::bench
