// With --sms: rates of a shuffle on few multiprocessors, and the slowdown of a matrix product on the others.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "bench/device/clock.hpp"
#include "bench/device/systems.hpp"
#include "bench/shuffle/config.hpp"
#include "bench/shuffle/measure.hpp"
#include "shunt/world.hpp"

namespace shunt::bench {

/// Threads of a block that waits for other ranks, and most threads of a block that others wait for.
inline constexpr std::int32_t kPlanThreads = 512;
inline constexpr std::int32_t kMostThreads = 1024;

/// Least number of multiprocessors on which all ranks but one can wait, spread evenly, while every multiprocessor still
/// has room for a block of the last rank. Fewer could deadlock.
constexpr std::int32_t least_sms(std::int32_t ranks, std::int32_t waiting_threads, std::int32_t threads_per_sm) {
  const std::int32_t room = threads_per_sm - kMostThreads;
  return ranks == 1 ? 1 : ((ranks - 1) * waiting_threads + room - 1) / room;
}

/// Divides the multiprocessors of a device into two parts by green contexts, so that kernels of one part never run on
/// the other. For ranks that are threads of one process and share its current device.
class SmPartition {
 public:
  /// Collective. Throws Error(unsupported) if the device can't be divided like this.
  SmPartition(World& world, std::int32_t few);

  /// A stream whose kernels run on the few, or on the rest. It may outlive the partition.
  [[nodiscard]] std::shared_ptr<CUstream_st> stream_on_few() const;
  [[nodiscard]] std::shared_ptr<CUstream_st> stream_on_rest() const;
  [[nodiscard]] std::int32_t num_rest() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

class FewSms {
 public:
  /// Collective. clock, stream: of this rank, restricted to the partition's few. Throws if kernels of the ranks'
  /// streams ran on more multiprocessors than requested.
  FewSms(World& world, const ShuffleConfig& config, DeviceClock& clock, cudaStream_t stream,
         const SmPartition& partition);

  /// Collective: measures the store rate of the few once.
  void measure_stores(Timings& timings, std::byte* buffer, std::size_t bytes) const;

  /// Collective: measures pairs of dispatch and combine, and matrix products, alone and at the same time.
  void measure_gemm(DeviceSystem& system);

  /// shunt: medians of this run; delivered_bytes: bytes of rows that a dispatch of all ranks writes; copy_gbps: copy
  /// rate of the whole device, read plus written.
  [[nodiscard]] FewSmsResult summarise(const Timings& timings, std::size_t stored_bytes, const SystemResult& shunt,
                                       double delivered_bytes, double copy_gbps) const;

 private:
  World& world_;
  const ShuffleConfig& config_;
  DeviceClock& clock_;
  cudaStream_t stream_;
  const SmPartition& partition_;
  FewSmsResult result_;
};

}  // namespace shunt::bench
