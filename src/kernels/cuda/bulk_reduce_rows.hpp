// Combine on few multiprocessors.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/reduce_rows.hpp"

namespace shunt::device {

/// Whether rows can be bulk copied and the result be written in whole vectors; else only the plain kernel will do.
bool fits_bulk_copies(const ReduceRows& reduce);

/// The same sums, bit for bit, on at most so many multiprocessors, as BulkCopyRows. A warp takes a piece of a token at
/// a time, and its rows pass through shared memory. Where has_bulk_copies() and fits_bulk_copies(); at most 32 terms.
void launch_bulk(const ReduceRows& reduce, std::int32_t sms, cudaStream_t stream);
void preload_bulk_reduce_rows();

}  // namespace shunt::device
