// Which kernels carry rows.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "engine/cuda/engine_impl.hpp"
#include "kernels/cuda/reduce_rows.hpp"

namespace shunt::device {

/// Where a kernel runs.
struct Lane {
  std::int32_t sms;  ///< at most so many multiprocessors, where rows are multiples of 16 bytes; 0: all
  cudaStream_t stream;
};

/// Every row of x into its slots. out: [ranks], device: where each rank's rows begin.
void launch_copy(const DevicePlanData& plan, const ConstTensor& x, std::byte* const* out, const std::uint32_t* stop,
                 const Lane& lane);

void launch_sum(const ReduceRows& reduce, const Lane& lane);

}  // namespace shunt::device
