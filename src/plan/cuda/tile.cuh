// A tile of tokens in shared memory: for each column (a physical expert, or a rank) one bit per token. Counting and
// ranking become population counts, so that the order of tokens needs no sort and no atomics with an outcome.
#pragma once

#include <cstdint>

#include "core/cuda/choose_copy.cuh"
#include "core/cuda/segment.hpp"
#include "plan/cuda/map_tables.hpp"
#include "plan/cuda/routing_view.hpp"
#include "plan/cuda/tile_memory.hpp"

namespace shunt::device {

class Tile {
 public:
  /// `bits` is shared memory of [columns, kTileWords].
  __device__ Tile(const RoutingView& routing, const MapTables& map, std::uint32_t* bits)
      : routing_(routing), map_(map), bits_(bits), first_token_(std::int64_t{blockIdx.x} * kTileTokens) {}

  __device__ std::int64_t first_token() const { return first_token_; }
  __device__ std::int32_t num_tokens() const {
    return static_cast<std::int32_t>(min(std::int64_t{kTileTokens}, routing_.num_tokens - first_token_));
  }
  __device__ std::int32_t num_entries() const { return num_tokens() * routing_.topk; }

  __device__ std::int32_t named(std::int32_t entry) const {
    return routing_.experts[first_token_ * routing_.topk + entry];
  }

  /// The copy that serves an entry which names this expert; −1 where it is dropped or makes no sense.
  __device__ std::int32_t physical(std::int32_t entry, std::int32_t expert) const {
    return choose_copy(map_, expert, [&] { return routing_.self + first_token_ + entry / routing_.topk; });
  }

  /// Clears the bits. The caller synchronises the block before it marks.
  __device__ void clear() {
    for (std::int32_t i = threadIdx.x; i < map_.num_columns() * kTileWords; i += blockDim.x) bits_[i] = 0;
  }

  /// False if the token has named the expert before.
  __device__ bool mark(std::int32_t entry, std::int32_t expert, std::int32_t rank) {
    const std::int32_t token = entry / routing_.topk;
    const std::uint32_t bit = 1u << (token % 32);
    atomicOr(&bits_[(map_.num_physical + rank) * kTileWords + token / 32], bit);
    return (atomicOr(&bits_[expert * kTileWords + token / 32], bit) & bit) == 0;
  }

  __device__ std::int32_t count(std::int32_t column) const {
    std::int32_t sum = 0;
#pragma unroll
    for (std::int32_t word = 0; word < kTileWords; ++word) sum += __popc(bits_[column * kTileWords + word]);
    return sum;
  }

  /// Tokens of the column before the entry's.
  __device__ std::int32_t rank_in_column(std::int32_t column, std::int32_t entry) const {
    const std::int32_t token = entry / routing_.topk;
    const std::uint32_t* words = bits_ + column * kTileWords;
    std::int32_t sum = __popc(words[token / 32] & ((1u << (token % 32)) - 1u));
    for (std::int32_t word = 0; word < token / 32; ++word) sum += __popc(words[word]);
    return sum;
  }

 private:
  const RoutingView& routing_;
  const MapTables& map_;
  std::uint32_t* bits_;
  std::int64_t first_token_;
};

}  // namespace shunt::device
