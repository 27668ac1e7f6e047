// A tile of tokens in shared memory: one bit per token for each column (a physical expert, or a rank). Counting and
// ranking are population counts, so the order of tokens needs neither a sort nor order-dependent atomics.
#pragma once

#include <cstdint>

#include "core/cuda/map_tables.hpp"
#include "core/cuda/segment.hpp"
#include "plan/cuda/map_tables.hpp"
#include "plan/cuda/plan_arrays.hpp"
#include "plan/cuda/routing_view.hpp"
#include "shunt/routing.hpp"

namespace shunt::device {

/// The only copy of an expert; −1 if there are several, or no such expert.
__device__ inline std::int32_t only_copy_of(const MapTables& map, std::int32_t expert) {
  return expert >= 0 && expert < map.num_experts ? map.only_copy[expert] : -1;
}

class Tile {
 public:
  /// bits: shared memory of [columns, kTileWords] words.
  __device__ Tile(const RoutingView& routing, const MapTables& map, std::uint32_t* bits)
      : routing_(routing),
        map_(map),
        bits_(bits),
        first_token_(std::int64_t{blockIdx.x} * kTileTokens),
        tokens_per_entry_((1u << kTokenShift) / static_cast<std::uint32_t>(routing.topk) + 1) {}

  __device__ std::int64_t first_token() const { return first_token_; }
  __device__ std::int32_t num_tokens() const {
    return static_cast<std::int32_t>(min(std::int64_t{kTileTokens}, routing_.num_tokens - first_token_));
  }
  __device__ std::int32_t num_entries() const { return num_tokens() * routing_.topk; }

  /// The token of an entry of the tile: a division by topk, computed as a multiplication.
  __device__ std::int32_t token_of(std::int32_t entry) const {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(entry) * tokens_per_entry_ >> kTokenShift);
  }

  /// One choice of a token, and the table entries for it.
  struct Entry {
    std::int32_t index;   ///< in the tile
    std::int32_t named;   ///< the logical expert
    std::int32_t expert;  ///< the copy that serves it; −1 if dropped or invalid, and then rank and key are −1 too
    std::int32_t rank;
    std::int32_t key;
  };

  /// Calls use(entry) for all entries of this thread. Several entries are looked up together, because each look-up
  /// depends on the previous one, and a plan's time is all latency.
  template <class Use>
  __device__ void for_entries(const Use& use) const {
    constexpr int kAtOnce = 4;
    for (std::int32_t begin = threadIdx.x; begin < num_entries(); begin += kAtOnce * blockDim.x) {
      Entry entries[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        Entry& entry = entries[i];
        entry.index = begin + i * blockDim.x;
        const bool is_here = entry.index < num_entries();
        const std::int64_t place = first_token_ * routing_.topk + entry.index;
        entry.named = is_here ? routing_.experts[place] : -1;
        entry.expert = is_here && routing_.copies ? routing_.copies[place] : -1;
      }
      if (!routing_.copies) {
#pragma unroll
        for (Entry& entry : entries) entry.expert = only_copy_of(map_, entry.named);
      }
#pragma unroll
      for (Entry& entry : entries) {
        entry.rank = entry.expert >= 0 ? map_.rank_of[entry.expert] : -1;
        entry.key = entry.expert >= 0 ? map_.key_of[entry.expert] : -1;
      }
#pragma unroll
      for (const Entry& entry : entries)
        if (entry.index < num_entries()) use(entry);
    }
  }

  /// Clears the bits. The caller synchronises the block before mark().
  __device__ void clear() {
    for (std::int32_t i = threadIdx.x; i < map_.num_columns() * kTileWords; i += blockDim.x) bits_[i] = 0;
  }

  /// Sets the entry's bits; it must have an expert. False if its token has already named the expert.
  __device__ bool mark(const Entry& entry) {
    const std::int32_t token = token_of(entry.index);
    const std::uint32_t bit = 1u << (token % 32);
    atomicOr(&bits_[(map_.num_physical + entry.rank) * kTileWords + token / 32], bit);
    return (atomicOr(&bits_[entry.expert * kTileWords + token / 32], bit) & bit) == 0;
  }

  __device__ std::int32_t count(std::int32_t column) const {
    std::int32_t sum = 0;
#pragma unroll
    for (std::int32_t word = 0; word < kTileWords; ++word) sum += __popc(bits_[column * kTileWords + word]);
    return sum;
  }

  /// Number of tokens in the column before the entry's token.
  __device__ std::int32_t rank_in_column(std::int32_t column, std::int32_t entry) const {
    const std::int32_t token = token_of(entry);
    const std::uint32_t* words = bits_ + column * kTileWords;
    std::int32_t sum = __popc(words[token / 32] & ((1u << (token % 32)) - 1u));
#pragma unroll
    for (std::int32_t word = 0; word < kTileWords - 1; ++word)
      if (word < token / 32) sum += __popc(words[word]);
    return sum;
  }

 private:
  static constexpr int kTokenShift = 20;
  static_assert(kTileTokens * Routing::kMaxTopK * Routing::kMaxTopK <= 1 << kTokenShift);  // so the quotient is exact

  const RoutingView& routing_;
  const MapTables& map_;
  std::uint32_t* bits_;
  std::int64_t first_token_;
  std::uint32_t tokens_per_entry_;  // in units of 2^-kTokenShift, rounded up
};

}  // namespace shunt::device
