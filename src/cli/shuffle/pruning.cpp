#include "cli/shuffle/pruning.hpp"

#include <fmt/format.h>

#include "shunt/pruning.hpp"

namespace shunt::cli {
namespace {

bool all_tokens_have_scores(const ShuffleConfig& config, const RoutingModel& model) {
  if (!model.has_scores()) return false;
  for (std::int64_t rank = 0; rank < config.ranks; ++rank)
    for (std::int64_t token = 0; token < config.tokens; ++token)
      if (!model.has_scores(rank, token)) return false;
  return true;
}

/// What the share of mass that pruning keeps is a share of.
double mass_of(const RankRouting& routing, std::span<const float> scores, std::size_t num_experts, std::size_t topk) {
  double mass = 0;
  for (std::size_t entry = 0; entry < routing.experts.size(); ++entry) {
    if (routing.experts[entry] < 0) continue;
    const auto expert = static_cast<std::size_t>(routing.experts[entry]);
    mass += static_cast<double>(scores.empty() ? routing.weights[entry] : scores[entry / topk * num_experts + expert]);
  }
  return mass;
}

}  // namespace

TokenPruning::TokenPruning(const ShuffleConfig& config, const RoutingModel& model)
    : config_(config),
      model_(model),
      similarity_(config.prune.by == "similarity" ? model.similarity() : std::nullopt),
      has_scores_(all_tokens_have_scores(config, model)) {}

PruneOptions TokenPruning::options(RankId source) const {
  return {.limit = *config_.prune.limit,
          .level = config_.prune.level == "nodes" ? PruneLevel::nodes : PruneLevel::ranks,
          .similarity = similarity_ ? &*similarity_ : nullptr,
          .source = source};
}

std::vector<float> TokenPruning::scores(RankId rank) const {
  if (!has_scores_) return {};
  const auto num_experts = static_cast<std::size_t>(config_.experts);
  std::vector<float> scores(static_cast<std::size_t>(config_.tokens) * num_experts);
  for (std::int64_t token = 0; token < config_.tokens; ++token)
    model_.read_scores(rank.value, token,
                       std::span(scores).subspan(static_cast<std::size_t>(token) * num_experts, num_experts));
  return scores;
}

PruningFigures prune_routings(const ShuffleConfig& config, const RoutingModel& model, const ExpertMap& map,
                              std::vector<RankRouting>& routings) {
  const auto topk = static_cast<std::size_t>(config.topk);
  const TokenPruning pruning(config, model);
  PruningFigures figures;
  figures.has_scores = pruning.has_scores();
  double mass_before = 0, mass_after = 0, num_changed = 0;
  std::int64_t num_routed = 0;
  for (std::size_t rank = 0; rank < routings.size(); ++rank) {
    RankRouting& routing = routings[rank];
    const std::vector<float> scores = pruning.scores(RankId(rank));
    const double mass = mass_of(routing, scores, static_cast<std::size_t>(config.experts), topk);
    std::int64_t routed = 0;
    for (std::size_t first = 0; first < routing.experts.size(); first += topk) {
      const auto experts = std::span(routing.experts).subspan(first, topk);
      routed += std::any_of(experts.begin(), experts.end(), [](std::int32_t expert) { return expert >= 0; }) ? 1 : 0;
    }
    PrunedRouting pruned =
        prune(routing.view(config.topk), scores, map, config.topology(), pruning.options(RankId(rank)));
    mass_before += mass;
    mass_after += mass * pruned.report.mass_kept;
    num_changed += static_cast<double>(routed) * pruned.report.share_changed;
    num_routed += routed;
    figures.num_dropped += pruned.report.num_dropped;
    routing.experts = std::move(pruned.experts);
    routing.weights = std::move(pruned.weights);
  }
  if (mass_before > 0) figures.mass_kept = mass_after / mass_before;
  if (num_routed > 0) figures.share_changed = num_changed / static_cast<double>(num_routed);
  return figures;
}

void add_figures(nlohmann::ordered_json& report, const ShuffleConfig& config, const RoutingFigures& figures,
                 const std::optional<PruningFigures>& pruning) {
  report.update({{"c_t", figures.c_t}, {"c_t_node", figures.c_t_node}, {"load", figures.load}});
  if (!pruning) return;
  report["pruning"] = {{"limit", *config.prune.limit},
                       {"level", config.prune.level},
                       {"by", config.prune.by},
                       {"scores", pruning->has_scores ? "all experts" : "own experts"},
                       {"mass_kept", pruning->mass_kept},
                       {"share_changed", pruning->share_changed},
                       {"num_dropped", pruning->num_dropped},
                       {"c_t_before", pruning->before.c_t},
                       {"c_t_node_before", pruning->before.c_t_node},
                       {"c_t_after", figures.c_t},
                       {"c_t_node_after", figures.c_t_node}};
}

std::string describe(const ShuffleConfig& config, const RoutingFigures& after, const PruningFigures& pruning) {
  const bool counts_nodes = config.prune.level == "nodes";
  return fmt::format(
      "pruned by {} to at most {} {} per token, {}:\n"
      "    mass kept {:.4f}, tokens changed {:.1f} %, experts dropped {}, C_T by {} {:.3f} -> {:.3f}",
      config.prune.by, *config.prune.limit, config.prune.level,
      pruning.has_scores ? "scores of all experts known" : "only weights of a token's own experts known",
      pruning.mass_kept, 100 * pruning.share_changed, pruning.num_dropped, counts_nodes ? "node" : "rank",
      counts_nodes ? pruning.before.c_t_node : pruning.before.c_t, counts_nodes ? after.c_t_node : after.c_t);
}

}  // namespace shunt::cli
