// Combine on few multiprocessors.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/reduce_rows.hpp"

namespace shunt::device {

/// True if rows and result can be accessed in whole vectors, and a warp has a lane for each of a token's rows;
/// otherwise use launch(ReduceRows).
bool fits_pipeline(const ReduceRows& reduce);

/// The same sums, bit for bit, on at most `sms` multiprocessors, with one block of the kernel on each. Requires
/// fits_pipeline(). Fetching rows ahead into shared memory hides the memory's latency, instead of many threads.
void launch_pipelined(const ReduceRows& reduce, std::int32_t sms, cudaStream_t stream);
void preload_pipelined_reduce_rows();

}  // namespace shunt::device
