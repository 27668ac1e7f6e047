// Combine on few multiprocessors.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/reduce_rows.hpp"

namespace shunt::device {

/// Whether rows and result can be read and written in whole vectors, and a warp has a lane for each of a token's rows;
/// else only the plain kernel will do.
bool fits_pipeline(const ReduceRows& reduce);

/// The same sums, bit for bit, on at most so many multiprocessors: blocks are as many, and none shares one with another
/// of the kernel. What hides the memory's latency is not many threads but rows on their way into shared memory. Where
/// fits_pipeline().
void launch_pipelined(const ReduceRows& reduce, std::int32_t sms, cudaStream_t stream);
void preload_pipelined_reduce_rows();

}  // namespace shunt::device
