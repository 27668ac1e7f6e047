// Gradient of routing weights: dot products of every token's gradient with its rows.
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
  const std::uint32_t* stop;  ///< device; if the word is not 0, the kernel does nothing
};

void launch(const DotRows& dot, cudaStream_t stream);
void preload_dot_rows();

}  // namespace shunt::device
