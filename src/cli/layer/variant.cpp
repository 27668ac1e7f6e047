#include "cli/layer/variant.hpp"

namespace shunt::cli {

std::vector<LayerVariant> make_variants(const LayerConfig& config, const Workload& workload, std::size_t rank) {
  std::vector<LayerVariant> variants;
  const auto add = [&](const std::string& name, LayerWay way, const ExpertMap& map, const Workload& placed) {
    variants.push_back({name, way, map, placed.routing(rank), placed.figures(), placed.pruning()});
  };
  ExpertMap map = config.unplaced().map();
  for (const std::string& system : config.systems) add(system, parse_layer_way(system), map, workload);
  const LayerWay way = variants.back().way;
  const auto add_placed = [&](const char* name, const PruneRequest& prune) {
    add(name, way, map, workload.under(map, prune));
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

}  // namespace shunt::cli
