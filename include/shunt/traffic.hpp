// Bytes that a shuffle moves, by pair of ranks and by pair of nodes. Placement and simulation score with this same
// counter, so that they can't disagree with the planner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shunt/ids.hpp"

namespace shunt {

/// A square matrix of counts, [source, destination].
class PairCounts {
 public:
  explicit PairCounts(std::int32_t size) : size_(static_cast<std::size_t>(size)), counts_(size_ * size_) {}

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(size_); }
  std::uint64_t& at(std::size_t source, std::size_t destination) { return counts_[source * size_ + destination]; }
  [[nodiscard]] std::uint64_t at(std::size_t source, std::size_t destination) const {
    return counts_[source * size_ + destination];
  }
  /// Over all pairs with source ≠ destination.
  [[nodiscard]] std::uint64_t total_off_diagonal() const;
  [[nodiscard]] std::uint64_t total() const;

 private:
  std::size_t size_;
  std::vector<std::uint64_t> counts_;
};

/// One dispatch; a combine moves the same counts the other way round.
struct Traffic {
  /// Bytes of rows written into each rank's output, by (source rank, destination rank): one row per (token, expert), or
  /// per (token, rank) in `token_unique`. The diagonal is what stays on a rank.
  PairCounts rank_bytes;
  /// Bytes that cross from node to node when each token travels once per destination node. The diagonal is zero.
  PairCounts node_bytes;
  /// Mean number of distinct ranks a token is sent to (C_T), over tokens with at least one expert.
  double mean_ranks_per_token = 0;
  /// Several hosts: what the busiest NIC sends to other hosts or, if that is more, takes in from them; and the least
  /// that any choice of forwarders could make it.
  std::uint64_t heaviest_link_bytes = 0;
  std::uint64_t least_heaviest_link_bytes = 0;
};

}  // namespace shunt
