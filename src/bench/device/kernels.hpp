// Kernels used only by benchmarks.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shunt/dtype.hpp"

namespace shunt::bench {

/// Multiprocessors that ran the blocks of a kernel on this stream; waits for the stream.
std::vector<std::uint32_t> sms_of(cudaStream_t stream);

/// Launches a kernel of `blocks` blocks that stores to the whole buffer `times` times and does nothing else.
void launch_stores(std::byte* to, std::size_t bytes, std::int32_t times, std::int32_t blocks, cudaStream_t stream);

/// Fills memory with values uniformly distributed in ±scale, the same for the same seed. Waits. (Products of zeros are
/// faster than those of real weights and rows.)
void fill_with_random_values(std::byte* data, std::size_t count, DType dtype, float scale, std::uint64_t seed,
                             cudaStream_t stream);

}  // namespace shunt::bench
