// The arrays of a plan in device memory, their sizes, and the shared memory of kernels that process a tile of tokens.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cuda/segment.hpp"

namespace shunt::device {

/// Parameters that determine the sizes of one rank's plan; all are known before the routing is.
struct PlanShape {
  std::int64_t num_tokens;
  std::int32_t topk;
  std::int32_t num_physical;
  std::int32_t num_local;
  std::int32_t num_ranks;
  bool unique;                   ///< `token_unique`, else `expert_major`
  std::int64_t max_rows;         ///< `token_unique`: unique rows that any rank can receive
  std::int64_t max_expert_rows;  ///< `token_unique`: expert-major rows that any rank can receive, padding included

  [[nodiscard]] constexpr std::int32_t num_columns() const { return num_physical + num_ranks; }
  [[nodiscard]] constexpr std::int32_t num_tiles() const {
    return static_cast<std::int32_t>((num_tokens + kTileTokens - 1) / kTileTokens);
  }
  /// Upper bound on the rows that a token sends.
  [[nodiscard]] constexpr std::int32_t rows_per_token() const { return unique && num_ranks < topk ? num_ranks : topk; }
  [[nodiscard]] constexpr std::int64_t num_segments() const { return num_tokens * rows_per_token(); }
};

/// Sizes that depend on all ranks' counts.
struct PlanSizes {
  std::int32_t num_rows;         ///< rows of this rank, padding included, clamped to the bound
  std::int32_t num_expert_rows;  ///< in expert-major order, padding included
  std::int32_t overflowed;       ///< 1: rows beyond the bound were dropped
  std::int32_t most_rows;        ///< maximum over all ranks, before clamping
};

/// Device pointers.
struct PlanArrays {
  // This rank as a source.
  std::uint32_t* tile_counts;  ///< [tiles, columns]: counts; later, their sums over earlier tiles
  std::int32_t* first_slot;    ///< [physical experts]: slot of this rank's first row
  std::int32_t* kept;          ///< [physical experts]: number of this rank's rows that fit
  std::int32_t* first_unique;  ///< [ranks]: slot of this rank's first unique row
  Segment* segments;           ///< [segments]
  Term* terms;                 ///< [tokens, topk]
  std::int32_t* bad_entry;     ///< [tiles]: an entry whose expert is out of range or repeated; −1: none
  std::byte** published;       ///< [2, ranks]: the address that each rank published at the plan's last barrier

  // This rank as a receiver.
  PlanSizes* sizes;
  std::int32_t* expert_offsets;  ///< [local experts + 1]
  std::int32_t* expert_counts;   ///< [local experts]

  std::int32_t* unique_maps;  ///< `token_unique`: the arrays of UniqueMaps; peers write them
};

/// Offsets, in words, of the index maps of `token_unique` in a rank's memory. They are the same on all ranks, so that
/// senders can compute them. Each starts at a multiple of four words.
struct UniqueMaps {
  std::int64_t unique_of_expert_row;   ///< [expert rows]; −1 for padding
  std::int64_t expert_rows_of_unique;  ///< [rows, topk]; −1 fills the tail
  std::int64_t unique_experts;         ///< [rows, topk]; −1 fills the tail
  std::int64_t unique_weights;         ///< [rows, topk] f32; 0 fills the tail
  std::int64_t num_words;

  static constexpr UniqueMaps of(const PlanShape& shape) {
    const auto whole_quads = [](std::int64_t words) { return (words + 3) / 4 * 4; };
    const std::int64_t cells = whole_quads(shape.max_rows * shape.topk);
    const std::int64_t begin = whole_quads(shape.max_expert_rows);
    return {0, begin, begin + cells, begin + 2 * cells, shape.unique ? begin + 3 * cells : 0};
  }
};

/// Assigns the arrays to one block of memory; with a null pointer it only computes the block's size.
class PlanBlock {
 public:
  PlanBlock(const PlanShape& shape, std::byte* begin);

  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] const PlanArrays& arrays() const { return arrays_; }

 private:
  template <class T>
  T* take(std::int64_t count);

  std::byte* begin_;
  std::size_t bytes_ = 0;
  PlanArrays arrays_{};
};

struct SlotRules {
  std::int64_t capacity;   ///< most rows of an expert
  std::int64_t max_rows;   ///< most rows of a rank
  std::int32_t alignment;  ///< of experts' blocks, in rows

  [[nodiscard]] constexpr std::int64_t aligned(std::int32_t rows) const {
    const auto step =
        static_cast<std::uint32_t>(alignment);  // a 64-bit division takes five times as long on the device
    return std::int64_t{(static_cast<std::uint32_t>(rows) + step - 1) / step} * alignment;
  }
};

inline constexpr std::int32_t kTileWords = kTileTokens / 32;

/// Bytes for placing, which needs more than counting: per column, bits and a first index; per entry, two and a half
/// words and a bit.
constexpr std::size_t tile_bytes(std::int32_t num_columns, std::int32_t topk) {
  const std::size_t entries = static_cast<std::size_t>(kTileTokens) * static_cast<std::size_t>(topk);
  return (static_cast<std::size_t>(num_columns) * (kTileWords + 1) + 2 * entries + entries / 2 + entries / 32) * 4;
}

/// Upper bound on the tile bytes of a block on the current device.
std::size_t most_tile_bytes();

}  // namespace shunt::device
