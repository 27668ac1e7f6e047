// Zeroes the gaps between the aligned blocks of experts.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace shunt::device {

struct ZeroPadding {
  std::byte* rows;              ///< [rows, row_bytes], aligned to 256 bytes
  const std::int32_t* offsets;  ///< [experts + 1], device
  const std::int32_t* counts;   ///< [experts], device: rows that are not padding
  std::int32_t num_experts;
  std::size_t row_bytes;
  const std::uint32_t* stop;  ///< device; if the word is not 0, the kernel does nothing
};

void launch(const ZeroPadding& padding, cudaStream_t stream);
void preload_zero_padding();

}  // namespace shunt::device
