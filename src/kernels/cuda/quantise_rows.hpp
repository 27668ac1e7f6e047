// Dispatch in fp8: every token is quantised once and goes, with its scales, into all of its slots.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "core/cuda/segment.hpp"
#include "shunt/dtype.hpp"
#include "shunt/routing.hpp"
#include "shunt/tensor.hpp"

namespace shunt::device {

/// Scales and elements are bit for bit those of kernels/fp8.hpp. A block per token and kQuantisedPiece of its elements,
/// which stores them to one slot after the other: docs/performance.md says why not a block per slot, as in CopyRows.
struct QuantiseRows {
  const std::byte* x;            ///< [tokens, hidden]: f32, bf16, f16; or fp8, which goes as it is
  const float* scales;           ///< [tokens, scales_per_row(hidden)]: of fp8 x; else null
  std::byte* const* rows;        ///< [ranks], device: where each rank's rows begin, aligned to 256 bytes
  std::byte* const* row_scales;  ///< [ranks], device: … and their scales
  const Term* terms;  ///< [tokens, topk], device: where a token's rows go; null: its one row, to rank 0's slot
                      ///< of the same number
  std::int64_t num_tokens;
  std::int32_t topk;
  std::int64_t hidden;
  DType x_dtype;
  const std::uint32_t* stop;  ///< device: nothing is done where it is set
};

/// Every token once, into the row of its number. `to`, device: where rows and their scales begin.
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

/// Elements that a block holds in shared memory; whole blocks of elements that share a scale.
inline constexpr std::int32_t kQuantisedPiece = 8192;
static_assert(kQuantisedPiece % kScaleBlock == 0);

/// Elements of a thread, neighbours that become one word of 16 bytes.
inline constexpr std::int32_t kQuantisedUnit = 16;

struct QuantiseGeometry {
  std::int32_t threads;  ///< of a block; also one per row at least
  std::int32_t pieces;   ///< of a row
};

constexpr QuantiseGeometry quantise_geometry(std::int64_t hidden) {
  const std::int64_t elements = hidden < kQuantisedPiece ? hidden : kQuantisedPiece;
  constexpr std::int64_t kWarpElements = 32 * kQuantisedUnit;
  const auto threads = static_cast<std::int32_t>((elements + kWarpElements - 1) / kWarpElements * 32);
  return {threads < Routing::kMaxTopK ? Routing::kMaxTopK : threads,
          static_cast<std::int32_t>((hidden + kQuantisedPiece - 1) / kQuantisedPiece)};
}

}  // namespace shunt::device
