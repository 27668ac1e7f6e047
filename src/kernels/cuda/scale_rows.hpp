// Gradient of combine's rows: multiplies every token's gradient by a weight and stores it in a slot.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "core/cuda/segment.hpp"
#include "shunt/dtype.hpp"

namespace shunt::device {

/// out[slot][i] = round(weight × x[token][i]). One block per segment; those with token −1 are skipped.
struct ScaleRows {
  const std::byte* x;       ///< [tokens, hidden]
  std::byte* const* out;    ///< [ranks], device: where each rank's rows begin, aligned to 256 bytes
  const Segment* segments;  ///< device
  std::int64_t num_segments;
  std::int64_t hidden;
  DType x_dtype;
  DType out_dtype;
  const std::uint32_t* stop;  ///< device; if the word is not 0, the kernel does nothing
};

void launch(const ScaleRows& scale, cudaStream_t stream);
void preload_scale_rows();

}  // namespace shunt::device
