// The activation between an expert's two products.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "shunt/dtype.hpp"

namespace shunt::device {

/// rows[r][i] = round(silu(rows[r][i]) × rows[r][ffn + i]) for i < ffn, in fp32, in place. silu(g) = g / (1 + exp(−g)).
struct SwiGlu {
  std::byte* rows;  ///< [num_rows, 2 ffn]: gate, then up; aligned to 16 bytes
  std::int64_t num_rows;
  std::int64_t ffn;  ///< a multiple of 8
  DType dtype;
};

void launch(const SwiGlu& swiglu, cudaStream_t stream);
void preload_swiglu();

}  // namespace shunt::device
