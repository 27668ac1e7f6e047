// Multiprocessors of a device in two parts, so that what runs on one leaves the other alone.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "shunt/world.hpp"

namespace shunt::cli {

/// Enforced by green contexts. For ranks that are threads of one process and share its current device.
class SmPartition {
 public:
  /// Collective. Throws Error(unsupported) where the device can't be split so.
  SmPartition(World& world, std::int32_t few);

  /// A stream whose kernels run on the few, or on the rest. Keeps what it needs of the partition.
  [[nodiscard]] std::shared_ptr<CUstream_st> stream_on_few() const;
  [[nodiscard]] std::shared_ptr<CUstream_st> stream_on_rest() const;
  [[nodiscard]] std::int32_t num_rest() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace shunt::cli
