// What one run of `shunt bench layer` compares.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/layer/config.hpp"
#include "cli/shuffle/workload.hpp"
#include "layer/moe_layer.hpp"
#include "shunt/expert_map.hpp"

namespace shunt::cli {

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

}  // namespace shunt::cli
