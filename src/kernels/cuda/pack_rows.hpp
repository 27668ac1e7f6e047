// `packed`: rows of `padded` move to the front of their expert's block, and terms of sums follow them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "core/cuda/segment.hpp"

namespace shunt::device {

/// On the receiver. Arrays are [local experts, ranks, max_tokens], but for counts and begins: [local experts, ranks].
struct PackRows {
  const std::byte* rows;
  std::byte* packed_rows;
  const float* scales;  ///< num_scales per row; 0: none
  float* packed_scales;
  const std::int32_t* counts;
  std::byte* const* sources;    ///< [ranks], device: null where nothing counts that the rank may have sent
  std::int32_t* packed_counts;  ///< those that were packed
  std::int32_t* begins;         ///< first packed row of each source, counted within the expert's block
  std::int32_t num_local;
  std::int32_t num_ranks;
  std::int32_t max_tokens;
  std::size_t row_bytes;
  std::int32_t num_scales;
  const std::uint32_t* stop;  ///< device: nothing is done where it is set
};

/// On the source, once the receivers have packed: slots of terms become those of packed rows.
struct ShiftTerms {
  Term* terms;  ///< [tokens, topk]
  std::int64_t num_tokens;
  std::int32_t topk;
  std::int32_t num_ranks;
  std::int32_t max_tokens;
  std::int32_t* const* begins;  ///< [ranks], device: every rank's
  const std::uint32_t* stop;
};

void launch(const PackRows& pack, cudaStream_t stream);
void launch(const ShiftTerms& shift, cudaStream_t stream);
void preload_pack_rows();

}  // namespace shunt::device
