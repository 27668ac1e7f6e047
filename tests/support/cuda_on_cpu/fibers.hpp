// Runs a kernel's threads on the CPU. Each CUDA thread that has to wait is a fiber with a stack of its own, so that
// barriers and warp operations switch between threads of a block without the operating system.
#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace cuda_on_cpu {

struct Grid {
  dim3 blocks;
  dim3 threads;
  std::size_t shared_bytes = 0;
  std::function<void()> body;  ///< the kernel with its arguments, run once for each thread

  [[nodiscard]] std::uint64_t num_blocks() const { return std::uint64_t{blocks.x} * blocks.y * blocks.z; }
  [[nodiscard]] unsigned num_threads() const { return threads.x * threads.y * threads.z; }
};

/// Returns when all blocks have ended. Blocks run one after the other on the calling thread. If one waits for long, so
/// perhaps for a later block, the rest run beside it on threads of their own.
void run(const Grid& grid);

/// Where a kernel runs.
struct Place {
  uint3 thread;
  uint3 block;
  uint3 threads;
  uint3 blocks;
};
[[gnu::tls_model("initial-exec")]] extern constinit thread_local Place place;

// What device_code.hpp makes the functions of CUDA from. Called within kernels only.

void* dynamic_shared_memory();

/// How many threads of the block came to a barrier, and how many of them with `true`.
struct Votes {
  unsigned all;
  unsigned in_favour;
};
Votes barrier(bool vote);

/// Each lane in `mask` gives a value and gets the one of lane `source`; its own if that lane takes no part.
std::uint64_t exchange(std::uint32_t mask, std::uint64_t value, unsigned source);
/// The lanes in `mask` that voted in favour.
std::uint32_t ballot(std::uint32_t mask, bool vote);

/// All threads of a launch read the time of the launch first, as if they had started at once. Who reads it again and
/// again is waiting for something, so the other threads, and the other threads of the system, run in between.
std::uint64_t nanoseconds();

}  // namespace cuda_on_cpu
