// What the device's planner tells its kernels of each row. Plain words, laid out for one 16-byte load.
#pragma once

#include <cstdint>

namespace shunt::device {

/// A row on its way out: from a token of this rank into a slot of some rank.
struct alignas(16) Segment {
  std::int32_t token;  ///< −1: nothing to do
  std::int32_t rank;
  std::int32_t slot;
  float weight;
};

/// What ends with a term of a sum, from the leaves of the reduction tree up; docs/adr/0002 defines the tree.
enum class Closes : std::int32_t { nothing, rank, node, remote_node };

/// A row that takes part in a token's sum. A token's terms stand in the order of the tree.
struct alignas(16) Term {
  std::int32_t rank;  ///< −1: no more terms
  std::int32_t slot;
  float weight;
  std::int16_t choice;  ///< index in the token's top-k; −1 in `token_unique`
  std::int16_t closes;  ///< a Closes
};

/// Tokens whose rows are sent in order of destination together: their rows stay in the cache while they are read top-k
/// times, and each expert's rows are neighbours. docs/performance.md has the figures for other sizes.
inline constexpr std::int32_t kTileTokens = 256;

}  // namespace shunt::device
