// Stands for the header that lets kernels start early: here they start one after the other. What would be a race on a
// device ends the process: a thread of such a kernel that does not wait for the stream, or lets the next kernel start
// before.
#pragma once

#include <array>
#include <cstdio>
#include <cstdlib>

#include "core/cuda/check.hpp"
#include "device_code.hpp"

namespace shunt::device {

/// By thread of the block that runs on this thread of the system. True in kernels that were launched as usual.
inline std::array<bool, 1024>& has_waited() {
  static thread_local std::array<bool, 1024> all = [] {
    std::array<bool, 1024> none;
    none.fill(true);
    return none;
  }();
  return all;
}

inline void require_wait(const char* what) {
  if (has_waited()[cuda_on_cpu::thread_of_block()]) return;
  std::fprintf(stderr, "a kernel that was launched early %s before it waited for its stream\n", what);
  std::abort();
}

inline void wait_for_stream() { has_waited()[cuda_on_cpu::thread_of_block()] = true; }
inline void let_next_start() { require_wait("let the next one start"); }

template <class... Parameters, class... Arguments>
void launch_early(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, std::size_t shared_bytes,
                  cudaStream_t stream, const Arguments&... arguments) {
  cuda_on_cpu::submit_kernel(reinterpret_cast<const void*>(kernel), blocks, threads, shared_bytes, stream,
                             [kernel, parameters = std::tuple<std::decay_t<Parameters>...>(arguments...)] {
                               has_waited()[cuda_on_cpu::thread_of_block()] = false;
                               std::apply(kernel, parameters);
                               require_wait("ended");
                             });
}

}  // namespace shunt::device
