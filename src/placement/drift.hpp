// Reaction to changes of routing since experts were placed: few moves for most of the gain, or none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "placement/place.hpp"
#include "placement/routed_tokens.hpp"
#include "shunt/expert_map.hpp"

namespace shunt::placement {

struct DriftOptions {
  PlaceOptions place;
  double expert_bytes = 3.0 * 7168 * 2048 * 2;  ///< an expert's weights, and states that move with them
  double near_bytes_per_s = 1, far_bytes_per_s = 1;
  double horizon_steps = 1000;  ///< number of shuffles for which a map is expected to stay
  double least_gain = 0.02;     ///< relative to the time of a shuffle; a smaller gain moves nothing
  double least_certainty = 4;   ///< least gain in standard deviations, measured between parts of the window
  double most_moves = 1.0 / 3;  ///< limit on moved experts of all layers, relative to the moves of a fresh placement
};

struct Move {
  ExpertId expert;
  RankId from, to;

  bool operator==(const Move&) const = default;
};

/// The decision for a layer after a window.
struct DriftStep {
  ExpertMap map;                 ///< the current one if nothing moves
  std::vector<Move> moves = {};  ///< by ascending expert
  double stale_ms = 0;           ///< time of a shuffle with the current map, on tokens not used for the plan
  double after_ms = 0;           ///< the same with `map`
  double moving_ms = 0;          ///< one-time cost of moving, on the busiest link
  double worth_ms = 0;           ///< gain over the horizon on all of the window's tokens, minus moving
  // For comparison: a fresh placement, with ranks relabelled so that fewest experts move.
  double fresh_ms = 0;
  std::int64_t fresh_moves = 0;
};

/// The options of a layer.
struct DriftChoices {
  DriftStep stay;
  std::vector<DriftStep> steps = {};  ///< steps that pay off, with different numbers of moves
};

/// window: recent tokens of a layer. Maps are searched on alternate runs of its tokens and judged on the others, so
/// that noise moves nothing. Throws Error(unsupported) for maps with copies, Error(invalid_argument) as place() does.
DriftChoices drift_choices(const RoutedTokens& window, const ExpertMap& current, const DriftOptions& options);

/// Chooses a step for every layer: those with the largest total worth, within the moves that all layers share.
std::vector<DriftStep> choose(std::span<const DriftChoices> layers, const DriftOptions& options);

/// Renumbers ranks of `fresh` within nodes, and nodes, such that as few experts as possible differ from `current`.
ExpertMap relabelled(const ExpertMap& fresh, const ExpertMap& current, const Topology& topology);

/// The moves of experts without copies that are on different ranks in `from` and `to`.
std::vector<Move> moves_between(const ExpertMap& from, const ExpertMap& to);

}  // namespace shunt::placement
