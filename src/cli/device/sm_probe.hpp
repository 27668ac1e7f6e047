// What multiprocessors can do, and which of them a stream uses.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shunt::cli {

/// Multiprocessors that run kernels of this stream, as many blocks see it; waits for the stream.
std::vector<std::uint32_t> sms_of(cudaStream_t stream);

/// Stores into all of the buffer from so many blocks, and does nothing else; so many times, that starting and ending
/// takes no part in it.
void launch_stores(std::byte* to, std::size_t bytes, std::int32_t times, std::int32_t blocks, cudaStream_t stream);

}  // namespace shunt::cli
