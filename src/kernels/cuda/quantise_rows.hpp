// Dispatch in fp8: quantises every token once and stores it, with its scales, in all of its slots.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "core/cuda/segment.hpp"
#include "shunt/dtype.hpp"
#include "shunt/routing.hpp"
#include "shunt/tensor.hpp"

namespace shunt::device {

/// Scales and elements have the bits of kernels/fp8.hpp. There is one block per token and kQuantisedPiece elements,
/// which stores to one slot after another; docs/performance.md explains why not one block per slot, as in CopyRows.
struct QuantiseRows {
  const std::byte* x;            ///< [tokens, hidden]: f32, bf16, f16; or fp8, which is copied
  const float* scales;           ///< [tokens, scales_per_row(hidden)]: of fp8 x; else null
  std::byte* const* rows;        ///< [ranks], device: where each rank's rows begin, aligned to 256 bytes
  std::byte* const* row_scales;  ///< [ranks], device: where the scales of each rank's rows begin
  const Term* terms;  ///< [tokens, topk], device: the slots of a token; null: token i has one row, slot i of rank 0
  std::int64_t num_tokens;
  std::int32_t topk;
  std::int64_t hidden;
  DType x_dtype;
  const std::uint32_t* stop;  ///< device; if the word is not 0, the kernel does nothing
};

/// Quantises token i to row i. to: device, the start of the rows and of their scales.
inline QuantiseRows quantise_tokens(const ConstTensor& x, std::byte* const* to, const std::uint32_t* stop) {
  return {.x = x.data,
          .scales = nullptr,
          .rows = to,
          .row_scales = to + 1,
          .terms = nullptr,
          .num_tokens = x.rows,
          .topk = 1,
          .hidden = x.cols,
          .x_dtype = x.dtype,
          .stop = stop};
}

void launch(const QuantiseRows& quantise, cudaStream_t stream);
void preload_quantise_rows();

/// Elements that a block holds in shared memory; a multiple of the elements that share a scale.
inline constexpr std::int32_t kQuantisedPiece = 8192;
static_assert(kQuantisedPiece % kScaleBlock == 0);

/// Elements of a thread; contiguous, 16 bytes once quantised.
inline constexpr std::int32_t kQuantisedUnit = 16;

struct QuantiseGeometry {
  std::int32_t threads;  ///< of a block; at least one per row
  std::int32_t pieces;   ///< per token
};

constexpr QuantiseGeometry quantise_geometry(std::int64_t hidden) {
  const std::int64_t elements = hidden < kQuantisedPiece ? hidden : kQuantisedPiece;
  constexpr std::int64_t kWarpElements = 32 * kQuantisedUnit;
  const auto threads = static_cast<std::int32_t>((elements + kWarpElements - 1) / kWarpElements * 32);
  return {threads < Routing::kMaxTopK ? Routing::kMaxTopK : threads,
          static_cast<std::int32_t>((hidden + kQuantisedPiece - 1) / kQuantisedPiece)};
}

}  // namespace shunt::device
