// What to do when routing has changed since experts were placed: few moves for most of the gain, or none.
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
  double expert_bytes = 3.0 * 7168 * 2048 * 2;  ///< of an expert's weights, and states that move with them
  double near_bytes_per_s = 1, far_bytes_per_s = 1;
  double horizon_steps = 1000;  ///< for how many shuffles a map is expected to stay
  double least_gain = 0.02;     ///< of the time of a shuffle; a smaller gain moves nothing
  double least_certainty = 4;   ///< nor one of fewer standard deviations of itself, from part to part of the window
  double most_moves = 1.0 / 3;  ///< experts of all layers that may move, of those that placing anew would move
};

struct Move {
  ExpertId expert;
  RankId from, to;

  bool operator==(const Move&) const = default;
};

/// What a layer does after a window.
struct DriftStep {
  ExpertMap map;                 ///< the current one where nothing moves
  std::vector<Move> moves = {};  ///< by ascending expert
  double stale_ms = 0;           ///< a shuffle with the current map, on tokens that the plan was not made from
  double after_ms = 0;           ///< the same with `map`
  double moving_ms = 0;          ///< the busiest link's, once
  double worth_ms = 0;           ///< what is gained over the horizon on all of the window's tokens, less moving
  // To compare with: experts placed anew, ranks relabelled so that fewest experts move.
  double fresh_ms = 0;
  std::int64_t fresh_moves = 0;
};

/// What a layer could do.
struct DriftChoices {
  DriftStep stay;
  std::vector<DriftStep> steps = {};  ///< that pay, with fewer moves and with more
};

/// `window`: recent tokens of a layer. Maps are searched on every other run of its tokens and judged on the others, so
/// that noise moves nothing. Throws Error(unsupported) for maps with copies, Error(invalid_argument) as place() does.
DriftChoices drift_choices(const RoutedTokens& window, const ExpertMap& current, const DriftOptions& options);

/// A step for every layer: those worth most together, within the moves that all layers share.
std::vector<DriftStep> choose(std::span<const DriftChoices> layers, const DriftOptions& options);

/// Renames ranks of `fresh` within nodes, and nodes, so that as few experts as possible are elsewhere than in
/// `current`.
ExpertMap relabelled(const ExpertMap& fresh, const ExpertMap& current, const Topology& topology);

/// Experts without copies that `to` has on another rank than `from`.
std::vector<Move> moves_between(const ExpertMap& from, const ExpertMap& to);

}  // namespace shunt::placement
