// Memory rates of this machine, which efficiencies are relative to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/timings.hpp"
#include "core/cluster.hpp"
#include "shunt/world.hpp"

namespace shunt::bench {

/// Results of `shunt info --measure`. Rates are of all ranks together; copies count bytes read plus bytes written.
struct MachineSpeed {
  double memcpy_gbps = 0;
  double streaming_gbps = 0;
  double write_gbps = 0;  ///< from a cached source: the limit of a dispatch with many copies per token
  double read_gbps = 0;   ///< the limit of a combine with many copies per token
  double barrier_us = 0;  ///< median over many, slowest rank
};

/// Memory rates of a rank, measured like a shuffle: all ranks at once, with buffers far larger than the caches.
class Ceilings {
 public:
  explicit Ceilings(std::int32_t num_ranks);

  /// Size of both buffers of one rank. The buffers of all ranks are several times the last-level caches, and bounded.
  static std::size_t bytes_per_rank(std::int32_t num_ranks);

  /// Collective: measures each kind of access once.
  void measure_once(World& world, Timings& timings);
  /// Medians over all calls of measure_once(), after Timings::take_slowest().
  [[nodiscard]] MachineSpeed speed(const Timings& timings) const;

 private:
  void copy_streaming();
  void write_streaming();
  void read();

  std::int32_t num_ranks_;
  std::size_t bytes_;
  std::vector<std::byte> from_;
  std::vector<std::byte> to_;
  std::uint64_t sink_ = 0;  // prevents the compiler from removing the reads
};

/// Measures with ranks as processes of this machine. Medians.
MachineSpeed measure_machine(std::int32_t num_ranks);

/// Describes this machine as a cluster for `shunt schedule`: one rank per core, up to eight, with the rates of
/// measure_machine() and of a plain matrix product on one core. Takes seconds.
Cluster measure_this_cluster();

}  // namespace shunt::bench
