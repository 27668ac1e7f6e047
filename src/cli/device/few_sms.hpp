// With --sms: what a shuffle reaches on few multiprocessors, and what a matrix product on the others loses by it.
#pragma once

#include "cli/device/clock.hpp"
#include "cli/device/sm_partition.hpp"
#include "cli/device/system.hpp"
#include "cli/shuffle/config.hpp"
#include "cli/shuffle/measure.hpp"
#include "shunt/world.hpp"

namespace shunt::cli {

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

}  // namespace shunt::cli
