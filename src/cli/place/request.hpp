// The options of `shunt place`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "placement/generate.hpp"
#include "placement/place.hpp"
#include "shunt/dtype.hpp"

namespace shunt::cli {

struct PlaceRequest {
  std::vector<std::string> traces;
  std::int32_t nodes = 1, ranks_per_node = 8;
  std::string cluster = "h100";
  std::string objective = "time";
  double replicas = 0;
  std::optional<double> load_limit;
  std::int32_t prune = 0;  ///< most ranks per token; 0: no pruning
  double holdout = 0;
  std::string method = "shunt";
  std::int64_t first_token = 0;
  std::int64_t hidden = 7168;
  std::string dtype = "bf16";
  std::int64_t tokens_per_rank = 4096;
  std::string map_file;  ///< input of --stats and --from
  std::int64_t window = 0;
  double expert_mb = 3.0 * 7168 * 2048 * 2 / 1e6;
  double horizon = 1000;
  std::string output, json;
  bool progress = false;
  placement::SearchEffort effort;

  std::string generate;  ///< the kind of trace
  placement::GenerateOptions generated;
  std::int32_t generated_layers = 1;

  /// Throws Error(invalid_argument) that names the option, or an Error of Cluster::load.
  [[nodiscard]] placement::PlaceOptions options() const;
  [[nodiscard]] Cluster load_cluster() const;
};

void make_maps(const PlaceRequest& request);
void show_stats(const PlaceRequest& request);
void follow_drift(const PlaceRequest& request);
void generate_trace(const PlaceRequest& request);

}  // namespace shunt::cli
