// How many rows a layer's shuffle moves. Whoever knows the routing (a planner, a trace) tells those who only estimate
// times, so that they need no planner.
#pragma once

#include <cstdint>

#include "shunt/language.hpp"

namespace shunt {

/// One shuffle, as the ranks with the most work see it. Rows are counted as they travel: a token that goes once to a
/// node for several experts counts once there.
struct ShuffleRows {
  double near = 0;      ///< the heaviest rank sends or takes in from others of its node
  double far = 0;       ///< the heaviest node sends to or takes in from other nodes, all its ranks together
  double heaviest = 0;  ///< experts of the heaviest rank receive
  double mean = 0;      ///< experts of a rank receive, on average
};

/// The part of a batch that is shuffled.
struct ShufflePart {
  std::int32_t layer = 0;
  std::int64_t tokens = 0;  ///< of each rank
  std::int64_t topk = 1;
  std::int64_t experts = 1;
  std::int64_t groups = 1, groups_kept = 1;  ///< a token's experts are from so many groups of neighbours
  double kept = 1;                           ///< share of choices that a capacity can leave, at most
  std::int32_t part = 0, parts = 1;          ///< which part of the batch
};

class ShuffleVolume {
 public:
  virtual ~ShuffleVolume() = default;
  [[nodiscard]] virtual ShuffleRows rows(const ShufflePart& part) const = 0;
};

}  // namespace shunt
