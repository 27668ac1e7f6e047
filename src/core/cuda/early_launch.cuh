// Kernels whose launch is hidden behind the kernel ahead of them on the stream: they may start while it still runs, and
// wait on the device until it has ended ("programmatic dependent launch"). GPUs before compute capability 9.0 start
// them one after the other.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/cuda/check.hpp"

namespace shunt::device {

/// Called by all threads of a kernel that launch_early() starts, before they access memory. The kernel ahead of it on
/// the stream is complete then, and visible; so is all that precedes that one, if it was launched as usual or called
/// this, too. Callers' kernels that are launched programmatically must do the same (shunt/engine.hpp).
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

/// True if the current device's code of `kernel`, a kernel of this library, contains what wait_for_stream() does.
inline bool can_start_early(const void* kernel) {
  enum class Answer : std::uint8_t { unknown, no, yes };
  static std::array<std::atomic<Answer>, 64> answers{};  // by device; the same for all kernels of the library
  int device = 0;
  check(cudaGetDevice(&device), "look up the current device");
  const auto place = static_cast<std::size_t>(device);
  if (place < answers.size())
    if (const Answer known = answers[place].load(std::memory_order_relaxed); known != Answer::unknown)
      return known == Answer::yes;
  // A newer device may run code that was compiled for an older one, without the wait.
  int major = 0;
  cudaFuncAttributes attributes;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "look at a device");
  check(cudaFuncGetAttributes(&attributes, kernel), "look at a kernel");
  const Answer answer = major >= 9 && attributes.ptxVersion >= 90 ? Answer::yes : Answer::no;
  if (place < answers.size()) answers[place].store(answer, std::memory_order_relaxed);
  return answer == Answer::yes;
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
