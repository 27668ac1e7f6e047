// Random routings to prune, with maps, scores and options.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shunt/pruning.hpp"
#include "support/random_case.hpp"

namespace shunt::test {

/// Owns what the routing and the options view; not to be copied while they are in use.
struct PruneCase {
  Topology topology;
  ExpertMap map;
  std::int32_t topk;
  RankRouting chosen;
  std::vector<float> scores{};  ///< or empty
  std::optional<ExpertSimilarity> similarity{};
  std::int32_t limit = 1;
  PruneLevel level = PruneLevel::ranks;
  Renormalise renormalise = Renormalise::none;
  RankId source{};

  [[nodiscard]] Routing routing() const { return {chosen.experts, chosen.weights, topk}; }
  [[nodiscard]] PruneOptions options() const {
    return {.limit = limit,
            .level = level,
            .similarity = similarity ? &*similarity : nullptr,
            .renormalise = renormalise,
            .source = source};
  }
  [[nodiscard]] PrunedRouting prune() const { return shunt::prune(routing(), scores, map, topology, options()); }
  /// One line for the message of a failure.
  [[nodiscard]] std::string describe() const;
};

/// Covers replicas, ranks without experts, drops, missing weights and scores, weights that are the scores and such that
/// are not, routings that are the best of the scores and such that are not, many equal scores. Equal seeds and limits
/// give equal cases.
PruneCase random_prune_case(std::uint64_t seed, const CaseLimits& limits = {});

}  // namespace shunt::test
