// `packed`: moves the rows of `padded` to the start of their expert's block, and updates the terms of sums.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "core/cuda/segment.hpp"

namespace shunt::device {

/// Runs on the receiver. Arrays are [local experts, ranks, max_tokens], except counts and begins: [local experts,
/// ranks].
struct PackRows {
  const std::byte* rows;
  std::byte* packed_rows;
  const float* scales;  ///< num_scales per row; 0: none
  float* packed_scales;
  const std::int32_t* counts;
  std::byte* const* sources;    ///< [ranks], device: null for ranks whose rows are ignored
  std::int32_t* packed_counts;  ///< rows that were packed
  std::int32_t* begins;         ///< first packed row of each source, relative to the expert's block
  std::int32_t num_local;
  std::int32_t num_ranks;
  std::int32_t max_tokens;
  std::size_t row_bytes;
  std::int32_t num_scales;
  const std::uint32_t* stop;  ///< device; if the word is not 0, the kernel does nothing
};

/// Runs on the source after the receivers have packed: changes the slots of terms to those of the packed rows.
struct ShiftTerms {
  Term* terms;  ///< [tokens, topk]
  std::int64_t num_tokens;
  std::int32_t topk;
  std::int32_t num_ranks;
  std::int32_t max_tokens;
  std::int32_t* const* begins;  ///< [ranks], device: the begins of every rank
  const std::uint32_t* stop;
};

void launch(const PackRows& pack, cudaStream_t stream);
void launch(const ShiftTerms& shift, cudaStream_t stream);
void preload_pack_rows();

}  // namespace shunt::device
