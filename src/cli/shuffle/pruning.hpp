// Pruning of a benchmark's tokens.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/shuffle/config.hpp"
#include "cli/shuffle/routing_model.hpp"
#include "cli/shuffle/workload.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/pruning.hpp"

namespace shunt::cli {

/// How config.prune asks for the tokens to be pruned.
class TokenPruning {
 public:
  /// Refers to both.
  TokenPruning(const ShuffleConfig& config, const RoutingModel& model);

  /// Valid as long as this object.
  [[nodiscard]] PruneOptions options(RankId source) const;
  /// The model has router scores of all experts for every token of every rank.
  [[nodiscard]] bool has_scores() const { return has_scores_; }
  /// [tokens, experts] of a rank; empty if not all tokens have scores.
  [[nodiscard]] std::vector<float> scores(RankId rank) const;

 private:
  const ShuffleConfig& config_;
  const RoutingModel& model_;
  std::optional<ExpertSimilarity> similarity_;
  bool has_scores_;
};

/// Prunes every rank's routing as config.prune says; copies are left as they were. Router scores of all experts count
/// if the model has them for every token, else weights. Returns all but the figures of the routing before.
PruningFigures prune_routings(const ShuffleConfig& config, const RoutingModel& model, const ExpertMap& map,
                              std::vector<RankRouting>& routings);

/// The figures of a routing, in every report.
void add_figures(nlohmann::ordered_json& report, const ShuffleConfig& config, const RoutingFigures& figures,
                 const std::optional<PruningFigures>& pruning);

/// What pruning did, in a line or two.
[[nodiscard]] std::string describe(const ShuffleConfig& config, const RoutingFigures& after,
                                   const PruningFigures& pruning);

}  // namespace shunt::cli
