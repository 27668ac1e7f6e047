// Pruning of a benchmark's tokens.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/shuffle/config.hpp"
#include "cli/shuffle/routing_model.hpp"
#include "cli/shuffle/workload.hpp"
#include "shunt/expert_map.hpp"

namespace shunt::cli {

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
