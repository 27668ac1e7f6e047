// With --sms: what a shuffle reaches on few multiprocessors, and what a matrix product on the others loses by it.
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

// How many multiprocessors ranks need that wait for each other there.

/// Blocks that wait may have this many threads, and blocks of what others wait for up to kMostThreads.
inline constexpr std::int32_t kThreadsOfPlans = 512;
inline constexpr std::int32_t kMostThreads = 1024;

/// Enough that all ranks but one may wait, spread evenly, and leave room everywhere for what that one has to do.
constexpr std::int32_t least_sms(std::int32_t ranks, std::int32_t threads_that_wait, std::int32_t threads_per_sm) {
  const std::int32_t room = threads_per_sm - kMostThreads;
  return ranks == 1 ? 1 : ((ranks - 1) * threads_that_wait + room - 1) / room;
}

/// Multiprocessors of a device in two parts, so that what runs on one leaves the other alone. Enforced by green
/// contexts. For ranks that are threads of one process and share its current device.
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

class FewSms {
 public:
  /// Collective. `clock` and `stream` are a rank's own, and confined to the partition's few. Throws if kernels of all
  /// ranks' streams were seen on more multiprocessors than were asked for.
  FewSms(World& world, const ShuffleConfig& config, DeviceClock& clock, cudaStream_t stream,
         const SmPartition& partition);

  /// Collective; one repetition: how fast the few can store, with nothing else to do.
  void measure_stores(Timings& timings, std::byte* buffer, std::size_t bytes) const;

  /// Collective: pairs of dispatch and combine, and products, alone and at the same time.
  void measure_gemm(DeviceSystem& system);

  /// shunt: medians of this run; delivered_bytes: of rows that a dispatch of all ranks writes; copy_gbps: what the
  /// whole device can read plus write.
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
