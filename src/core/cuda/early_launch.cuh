// Kernels whose launch is hidden behind the kernel ahead of them on the stream: they may start while it still runs, and
// wait on the device until it has ended ("programmatic dependent launch"). GPUs before compute capability 9.0 start
// them one after the other.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "core/cuda/check.hpp"

namespace shunt::device {

/// Called by all threads of a kernel that launch_early() starts, before they access memory. All that precedes the
/// kernel on its stream is complete then, and visible.
__device__ inline void wait_for_stream() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Once every block of the kernel has called this or has ended, the next kernel may start if launch_early() launched
/// it. Call it after wait_for_stream(). The next kernel's blocks occupy multiprocessors from then on, so a kernel that
/// waits for other ranks calls it only after they have arrived: their kernels may need the room.
__device__ inline void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Whether the current device's code of `kernel`, a kernel of this library, contains what wait_for_stream() does.
inline bool can_start_early(const void* kernel) {
  int device = 0, major = 0;
  check(cudaGetDevice(&device), "ask for the device");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "ask for the device's kind");
  if (major < 9) return false;
  // The same for all kernels and devices, as the library is compiled for one set of GPUs.
  static const bool is_compiled_in = [&] {
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, kernel), "load a kernel");
    return attributes.ptxVersion >= 90;
  }();
  return is_compiled_in;
}

/// The kernel calls wait_for_stream(). Errors are left to cudaGetLastError(), as after any launch.
template <class... Parameters, class... Arguments>
void launch_early(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, std::size_t shared_bytes,
                  cudaStream_t stream, const Arguments&... arguments) {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = can_start_early(reinterpret_cast<const void*>(kernel)) ? 1 : 0;
  (void)cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace shunt::device
