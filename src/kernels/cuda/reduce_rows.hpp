// Combine: sums every token's rows along the reduction tree.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "core/cuda/segment.hpp"
#include "shunt/dtype.hpp"

namespace shunt::device {

/// result[token][i] = tree sum of weight × row[i] in fp32, with a rounded multiply, then a rounded add; each sum starts
/// from its first term (docs/adr/0002). Without terms, zeros.
struct ReduceRows {
  const std::byte* const* rows;  ///< [ranks], device: where each rank's rows begin, aligned to 16 bytes
  std::byte* result;             ///< [tokens, hidden]
  const Term* terms;             ///< [tokens, topk], device
  std::int64_t num_tokens;
  std::int32_t topk;
  std::int64_t hidden;
  DType row_dtype;
  DType wire_dtype;  ///< what the sums of other nodes are rounded to
  DType result_dtype;
  bool weighted;              ///< else all weights are 1
  const std::uint32_t* stop;  ///< device; if the word is not 0, the kernel does nothing
};

void launch(const ReduceRows& reduce, cudaStream_t stream);
void preload_reduce_rows();

}  // namespace shunt::device
