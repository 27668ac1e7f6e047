// What a plan holds on the device, and where.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cuda/segment.hpp"

namespace shunt::device {

/// Of one rank's plan. All sizes are known before the routing is.
struct PlanShape {
  std::int64_t num_tokens;
  std::int32_t topk;
  std::int32_t num_physical;
  std::int32_t num_local;
  std::int32_t num_ranks;
  bool unique;                   ///< `token_unique`, else `expert_major`
  std::int64_t max_rows;         ///< `token_unique`: unique rows that any rank can receive
  std::int64_t max_expert_rows;  ///< … and expert-major rows, padding included

  [[nodiscard]] constexpr std::int32_t num_columns() const { return num_physical + num_ranks; }
  [[nodiscard]] constexpr std::int32_t num_tiles() const {
    return static_cast<std::int32_t>((num_tokens + kTileTokens - 1) / kTileTokens);
  }
  /// The most rows that a token sends.
  [[nodiscard]] constexpr std::int32_t rows_per_token() const { return unique && num_ranks < topk ? num_ranks : topk; }
  [[nodiscard]] constexpr std::int64_t num_segments() const { return num_tokens * rows_per_token(); }
};

/// What is known once all ranks have counted.
struct PlanSizes {
  std::int32_t num_rows;         ///< of this rank, padding included; never beyond the bound
  std::int32_t num_expert_rows;  ///< in expert-major order, padding included
  std::int32_t overflowed;       ///< 1: rows beyond the bound were dropped
  std::int32_t most_rows;        ///< of any rank, as asked for
};

/// Device pointers.
struct PlanArrays {
  // As a source.
  std::uint32_t* tile_counts;  ///< [tiles, columns]; once all have counted, what earlier tiles hold
  std::int32_t* first_slot;    ///< [physical experts]: of this rank's first row
  std::int32_t* kept;          ///< [physical experts]: how many of this rank's rows there is room for
  std::int32_t* first_unique;  ///< [ranks]
  Segment* segments;           ///< [segments]
  Term* terms;                 ///< [tokens, topk]
  std::int32_t* bad_entry;     ///< [tiles]: one whose expert is out of range or named twice; −1: none
  std::byte** published;       ///< [2, ranks]: what each rank published at the plan's last barrier

  // As a receiver.
  PlanSizes* sizes;
  std::int32_t* expert_offsets;  ///< [local experts + 1]
  std::int32_t* expert_counts;   ///< [local experts]

  std::int32_t* unique_maps;  ///< `token_unique`: what UniqueMaps describes; peers write it
};

/// Where the index maps of `token_unique` lie in a rank's memory, in words, so that senders find them there: the same
/// on all ranks. All begin with a whole vector of four words.
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

/// Lays the arrays out in one block; called with a null pointer it only counts.
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

}  // namespace shunt::device
