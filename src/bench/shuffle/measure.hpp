// Runs the benchmark on one rank.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/shuffle/config.hpp"
#include "bench/shuffle/workload.hpp"
#include "shunt/world.hpp"

namespace shunt::bench {

/// Milliseconds, medians over iterations of the slowest rank.
struct SystemResult {
  std::string name;
  double plan_ms = 0;
  double dispatch_ms = 0;
  double combine_ms = 0;
  double planned_dispatch_ms = 0;  ///< on a device: plan and dispatch one after the other, without the host
  double dispatch_kernel_ms = 0;   ///< on a device: without signals
  double combine_kernel_ms = 0;
  // Of one dispatch, over all ranks.
  std::uint64_t cross_node_bytes =
      0;                          ///< rows whose source and slot lie on different nodes, each as often as it is moved
  std::uint64_t wire_bytes = 0;   ///< rows whose source and slot lie on different ranks
  std::uint64_t moved_bytes = 0;  ///< read plus written
  /// Several hosts, where shunt chooses who forwards: what the busiest NIC sends or takes in.
  std::uint64_t heaviest_link_bytes = 0;
};

/// On a device with --sms: what so few multiprocessors do.
struct FewSmsResult {
  std::int32_t sms_seen = 0;  ///< that ran kernels of the ranks' streams
  double store_gbps = 0;      ///< of kernels that only store, on all of the few
  double limit_gbps = 0;      ///< of rows delivered: what the few can store, or less if the device can't
  // Rows delivered per second, as shares of the limit.
  double dispatch_share = 0;
  double combine_share = 0;
  double dispatch_kernel_share = 0;
  double combine_kernel_share = 0;
  // A matrix product, and pairs of dispatch and combine beside it; 0 where there is no cuBLASLt to load.
  double gemm_ms = 0;
  double gemm_on_rest_ms = 0;
  double gemm_beside_ms = 0;
  double pair_ms = 0;
  double pair_beside_gemm_ms = 0;
};

struct ShuffleResult {
  RoutingFigures routing;
  std::optional<PruningFigures> pruning{};
  std::vector<SystemResult> systems;            ///< shunt first
  std::map<std::string, std::string> skipped;   ///< system → why
  std::uint64_t least_heaviest_link_bytes = 0;  ///< several hosts: of any choice of forwarders
  double copy_ceiling_gbps = 0;                 ///< the better of memcpy and streaming copy, read plus written
  double write_ceiling_gbps = 0;
  double read_ceiling_gbps = 0;
  double dispatch_efficiency = 0;
  double combine_efficiency = 0;
  // On a device.
  double planned_dispatch_efficiency = 0;
  double dispatch_kernel_efficiency = 0;
  double combine_kernel_efficiency = 0;
  double pair_ms = 0;  ///< plan, dispatch and combine, of a graph that holds many
  std::optional<FewSmsResult> few_sms = std::nullopt;
  // Of such a graph with stamps of time between operations.
  double graph_dispatch_ms = 0;  ///< with planning
  double graph_combine_ms = 0;
  double stamped_pair_ms = 0;  ///< as pair_ms: the difference is what stamps cost
};

/// Collective. Verifies every system, then measures them in turn, iteration by iteration. The same result on all ranks.
ShuffleResult measure(World& world, const ShuffleConfig& config);

/// The same for tokens on a device. Collective over threads of one process that share its current device. Throws
/// Error(unsupported) in builds without CUDA.
ShuffleResult measure_on_device(World& world, const ShuffleConfig& config);

/// Throws Error(unsupported) where there is no device, or in builds without CUDA. Lets as many ranks wait for each
/// other on one device as there are, if CUDA has not started yet.
void prepare_device();

}  // namespace shunt::bench
