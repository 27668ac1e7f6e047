// Stands for the header that lets kernels start early: here they start one after the other.
#pragma once

#include "core/cuda/check.hpp"
#include "launch.hpp"

namespace shunt::device {

inline void wait_for_stream() {}
inline void let_next_start() {}

template <class... Parameters, class... Arguments>
void launch_early(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, std::size_t shared_bytes,
                  cudaStream_t stream, const Arguments&... arguments) {
  kernel->*::cuda_on_cpu::Configuration(blocks, threads, shared_bytes, stream)(arguments...);
}

}  // namespace shunt::device
