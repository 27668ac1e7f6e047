// A clock that all kernels of a device share.
#pragma once

#include <cstdint>

namespace shunt::device {

__device__ inline std::uint64_t nanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

}  // namespace shunt::device
