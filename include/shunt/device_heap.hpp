// Device memory that all ranks of a node address. Only in builds with CUDA (SHUNT_CUDA); link shunt::device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "shunt/tensor.hpp"
#include "shunt/world.hpp"

namespace shunt {

struct DeviceHeapOptions {
  /// Of each rank; the same on all. Holds plans, dispatch outputs and expert outputs that are alive at the same time.
  std::size_t bytes = std::size_t{1} << 30;
  /// The CUDA device of this rank; −1 is the calling thread's current one. Ranks may share a device.
  std::int32_t device = -1;
};

/// Allocated once, so that nothing is allocated while ranks wait for each other. A cheap handle; copies share a heap,
/// and a rank's memory lives until the last rank of its process has let go of it: a rank may end while others still
/// wait for it. (What callers free themselves, cudaFree frees when the device is idle, and so when those have given
/// up.) Ranks that are processes let go of a heap together, after World::barrier(): CUDA frees what others still
/// address.
class DeviceHeap {
 public:
  struct Impl;

  /// Collective. Ranks of one host share a heap; between hosts there is DeviceClusterEngine. Waits for the device to be
  /// idle, so no rank may have operations under way. More than 8 ranks of a process on one device need
  /// CUDA_DEVICE_MAX_CONNECTIONS to be at least their number when CUDA starts, else waiting ranks could stand in each
  /// other's way: Error(unsupported). Engines share the heap's stream unless they are given others, which count too.
  DeviceHeap(World& world, const DeviceHeapOptions& options = {});

  /// In which dispatch outputs and expert outputs need no copy. Not collective and no CUDA call. Memory that is let go
  /// of may be handed out again at once: whoever uses it next must do so on the same stream, or after it.
  [[nodiscard]] Tensor allocate(DType dtype, std::int64_t rows, std::int64_t cols) const;

  [[nodiscard]] std::int32_t device() const;

  /// For engines.
  [[nodiscard]] const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace shunt
