#include "cli/layer/variant.hpp"

namespace shunt::cli {

std::vector<LayerVariant> make_variants(const LayerConfig& config, const Workload& workload, std::size_t rank) {
  std::vector<LayerVariant> variants;
  for (const std::string& system : config.systems)
    variants.push_back({system, parse_layer_way(system), config.shuffle.map(), workload.routing(rank)});
  return variants;
}

}  // namespace shunt::cli
