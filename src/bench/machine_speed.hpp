// How fast this machine is: the rates that systems are compared with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/timings.hpp"
#include "core/cluster.hpp"
#include "shunt/world.hpp"

namespace shunt::bench {

/// What `shunt info --measure` measures. Rates over all ranks together; copies count bytes read plus bytes written.
struct MachineSpeed {
  double memcpy_gbps = 0;
  double streaming_gbps = 0;
  double write_gbps = 0;  ///< from a source that stays in the cache: the limit of a dispatch with many copies per token
  double read_gbps = 0;   ///< the limit of a combine with many copies per token
  double barrier_us = 0;  ///< median over many, slowest rank
};

/// How fast a rank moves memory, measured like the shuffle: all ranks at once, far beyond the cache.
class Ceilings {
 public:
  explicit Ceilings(std::int32_t num_ranks);

  /// Of both buffers of one rank. All ranks' together are several times the last-level caches, and bounded.
  static std::size_t bytes_per_rank(std::int32_t num_ranks);

  /// Collective: times every way to move memory once.
  void measure_once(World& world, Timings& timings);
  /// Medians of what measure_once() has timed, over all ranks, once the timings have those of the slowest rank.
  [[nodiscard]] MachineSpeed speed(const Timings& timings) const;

 private:
  void copy_streaming();
  void write_streaming();
  void read();

  std::int32_t num_ranks_;
  std::size_t bytes_;
  std::vector<std::byte> from_;
  std::vector<std::byte> to_;
  std::uint64_t sink_ = 0;  // keeps the reads from being optimised away
};

/// On ranks as processes of this host. Medians.
MachineSpeed measure_machine(std::int32_t num_ranks);

/// This machine as a cluster that steps can be scheduled for. One rank per core, up to eight; rates as `shunt info
/// --measure` measures them, and that of a plain matrix product on one core. Takes seconds.
Cluster measure_this_cluster();

}  // namespace shunt::bench
