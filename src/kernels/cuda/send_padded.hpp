// Dispatch of few tokens without a plan: a slot follows from (expert, source, how many tokens before). The kernel is
// the engine's, as its last block meets the other ranks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cuda/map_tables.hpp"
#include "core/cuda/segment.hpp"

namespace shunt::device {

/// A block per token finds its slots by looking at the tokens before, while its row is on its way; one block more
/// counts rows for the receivers. The counts of sources that are left out are set to 0.
struct SendPadded {
  MapTables map;                ///< without copies: where experts have several, `experts` are those chosen
  const std::byte* x;           ///< [tokens, row_bytes]
  const float* scales;          ///< [tokens, num_scales]: of fp8 x
  const std::int32_t* experts;  ///< [tokens, topk]; dropped where out of range, or named before
  const float* weights;         ///< [tokens, topk]; null: all 1
  std::int32_t num_tokens;
  std::int32_t max_tokens;
  std::int32_t topk;
  std::int32_t self;
  std::size_t row_bytes;
  std::int32_t num_scales;  ///< per row; 0: none
  bool flat;                ///< rows are summed without partial sums

  /// [ranks], device: [local experts, ranks, max_tokens] rows, aligned to 256 bytes; null: what goes there is dropped
  std::byte* const* rows;
  float* const* row_scales;     ///< [ranks], device: … and their scales
  std::int32_t* const* counts;  ///< [ranks], device: [local experts, ranks]
  Term* terms;                  ///< [tokens, topk]: where the rows went, for combine
  const std::uint32_t* stop;    ///< device: nothing is done where it is set

  [[nodiscard]] constexpr std::int32_t num_blocks() const { return num_tokens + 1; }
};

/// Experts whose rows a block can count.
inline constexpr std::int32_t kMostPaddedExperts = 8192;

}  // namespace shunt::device
