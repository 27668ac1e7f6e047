// Kernels that benchmarks alone need.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shunt/dtype.hpp"

namespace shunt::bench {

/// Multiprocessors that run kernels of this stream, as many blocks see it; waits for the stream.
std::vector<std::uint32_t> sms_of(cudaStream_t stream);

/// Stores into all of the buffer from so many blocks, and does nothing else; so many times, that starting and ending
/// takes no part in it.
void launch_stores(std::byte* to, std::size_t bytes, std::int32_t times, std::int32_t blocks, cudaStream_t stream);

/// Numbers that look like weights or rows, as zeros would be multiplied faster. Evenly distributed in ±scale; the same
/// for the same seed. Waits.
void fill_with_random_values(std::byte* data, std::size_t count, DType dtype, float scale, std::uint64_t seed,
                             cudaStream_t stream);

}  // namespace shunt::bench
