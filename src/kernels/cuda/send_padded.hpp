// Dispatch of few tokens without a plan: a slot follows from expert, source and the number of earlier tokens. The
// kernel itself is in the engine, because its last block takes part in the barrier with the other ranks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cuda/map_tables.hpp"
#include "core/cuda/segment.hpp"

namespace shunt::device {

/// One block per token computes its slots from the preceding tokens, while its row is in flight; one more block counts
/// rows for the receivers. The counts of sources that are left out are set to 0.
struct SendPadded {
  MapTables map;                ///< without copies: if experts have several, `experts` holds the chosen copies
  const std::byte* x;           ///< [tokens, row_bytes]
  const float* scales;          ///< [tokens, num_scales]: of fp8 x
  const std::int32_t* experts;  ///< [tokens, topk]; entries that are out of range or repeated are dropped
  const float* weights;         ///< [tokens, topk]; null: all 1
  std::int32_t num_tokens;
  std::int32_t max_tokens;
  std::int32_t topk;
  std::int32_t self;
  std::size_t row_bytes;
  std::int32_t num_scales;  ///< per row; 0: none
  bool flat;                ///< rows are summed without partial sums

  /// [ranks], device: [local experts, ranks, max_tokens] rows, aligned to 256 bytes; null: rows for the rank are
  /// dropped
  std::byte* const* rows;
  float* const* row_scales;     ///< [ranks], device: the scales of these rows
  std::int32_t* const* counts;  ///< [ranks], device: [local experts, ranks]
  Term* terms;                  ///< [tokens, topk]: the slots of the rows, for combine
  const std::uint32_t* stop;    ///< device; if the word is not 0, the kernel does nothing

  [[nodiscard]] constexpr std::int32_t num_blocks() const { return num_tokens + 1; }
};

/// Upper bound on the experts whose rows a block can count.
inline constexpr std::int32_t kMostPaddedExperts = 8192;

}  // namespace shunt::device
