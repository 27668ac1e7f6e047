// Interface to the number of rows that a layer's shuffle moves. Code that has a routing (a planner, a trace) implements
// it, so that cost estimates don't depend on the planner.
#pragma once

#include <cstdint>

#include "shunt/language.hpp"

namespace shunt {

/// The load of one shuffle on the busiest ranks. Rows are counted as they travel: a token that goes once to a node for
/// several experts counts once there.
struct ShuffleRows {
  double near = 0;      ///< rows that the busiest rank sends to, or receives from, others of its node
  double far = 0;       ///< rows that the busiest node, all ranks together, sends to or receives from other nodes
  double heaviest = 0;  ///< rows that the experts of the busiest rank receive
  double mean = 0;      ///< rows that the experts of a rank receive on average
};

/// The part of a batch that is shuffled.
struct ShufflePart {
  std::int32_t layer = 0;
  std::int64_t tokens = 0;  ///< tokens per rank
  std::int64_t topk = 1;
  std::int64_t experts = 1;
  std::int64_t groups = 1, groups_kept = 1;  ///< expert groups, and those that a token's experts are chosen from
  double kept = 1;                           ///< upper bound on the share of choices that a capacity limit keeps
  std::int32_t part = 0, parts = 1;          ///< index of this part of the batch, and number of parts
};

class ShuffleVolume {
 public:
  virtual ~ShuffleVolume() = default;
  [[nodiscard]] virtual ShuffleRows rows(const ShufflePart& part) const = 0;
};

}  // namespace shunt
