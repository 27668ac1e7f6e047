// Bytes that a shuffle moves.
#pragma once

#include <cstdint>
#include <vector>

#include "shunt/language.hpp"

namespace shunt {

/// The traffic of one dispatch; a combine moves the same counts in the other direction. Rows count once per (token,
/// expert), or once per (token, rank) in `token_unique`.
struct Traffic {
  std::vector<std::uint64_t> sent_bytes;  ///< [ranks]: rows that this rank writes into each rank's output
  std::uint64_t total_bytes = 0;          ///< rows that all ranks write into outputs
  std::uint64_t between_ranks_bytes = 0;  ///< the part of total_bytes that leaves its rank
  std::uint64_t between_nodes_bytes = 0;  ///< rows that cross from node to node, each token once per node
  /// Mean number of distinct ranks a token is sent to (C_T), over tokens with at least one expert.
  double mean_ranks_per_token = 0;
  /// Several machines only: what the busiest NIC sends to other machines or, if more, receives from them; and the least
  /// value of this that any choice of forwarders could reach.
  std::uint64_t heaviest_link_bytes = 0;
  std::uint64_t least_heaviest_link_bytes = 0;
};

}  // namespace shunt
