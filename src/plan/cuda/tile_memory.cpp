#include "plan/cuda/tile_memory.hpp"

#include <cuda_runtime_api.h>

#include "core/cuda/check.hpp"

namespace shunt::device {

std::size_t most_tile_bytes() {
  constexpr std::size_t kUsedBesides = 4 << 10;  // by scans of a block
  int device = 0;
  int bytes = 0;
  check(cudaGetDevice(&device), "look up the current device");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "look at a device");
  return static_cast<std::size_t>(bytes) - kUsedBesides;
}

}  // namespace shunt::device
