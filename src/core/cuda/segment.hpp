// Rows as the device's planner describes them to kernels. Plain words, laid out for one 16-byte load.
#pragma once

#include <cstdint>

namespace shunt::device {

/// A row to send: from a token of this rank to a slot of a rank.
struct alignas(16) Segment {
  std::int32_t token;  ///< −1: unused
  std::int32_t rank;
  std::int32_t slot;
  float weight;
};

/// The sums that end with a term, from the leaves of the reduction tree to its root; docs/adr/0002 defines the tree.
enum class Closes : std::int32_t { nothing, rank, node, remote_node };

/// A row in a token's sum. A token's terms are in the order of the tree.
struct alignas(16) Term {
  std::int32_t rank;  ///< −1: no more terms
  std::int32_t slot;
  float weight;
  std::int16_t choice;  ///< index in the token's top-k; −1 in `token_unique`
  std::int16_t closes;  ///< a value of Closes
};

/// Number of tokens whose rows are sent together, in order of destination: their rows stay in the cache while they are
/// read top-k times, and each expert's rows are adjacent. docs/performance.md has figures for other sizes.
inline constexpr std::int32_t kTileTokens = 256;

}  // namespace shunt::device
