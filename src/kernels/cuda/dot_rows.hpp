// Gradient of routing weights: every token's gradient times each of its rows.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "core/cuda/segment.hpp"
#include "shunt/dtype.hpp"

namespace shunt::device {

/// result[token][choice] = x[token] · row, as kernels/dot.hpp defines it: lane l of 32 sums the elements i ≡ l (mod
/// 32), then lanes are added in halves. 0 for choices without a term. A warp per (token, choice).
struct DotRows {
  const std::byte* x;            ///< [tokens, hidden]
  const std::byte* const* rows;  ///< [ranks], device: where each rank's rows begin
  const Term* terms;             ///< [tokens, topk], device
  float* result;                 ///< [tokens, topk]
  std::int64_t num_tokens;
  std::int32_t topk;
  std::int64_t hidden;
  DType x_dtype;
  DType row_dtype;
  const std::uint32_t* stop;  ///< device: nothing is done where it is set
};

void launch(const DotRows& dot, cudaStream_t stream);
void preload_dot_rows();

}  // namespace shunt::device
