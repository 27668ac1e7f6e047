// The shuffle benchmark: what every rank calls, and its results.
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
  double planned_dispatch_ms = 0;  ///< on a device: plan and dispatch in one timing, without the host
  double dispatch_kernel_ms = 0;   ///< on a device: the kernel without barriers
  double combine_kernel_ms = 0;
  // Bytes of one dispatch, over all ranks.
  std::uint64_t cross_node_bytes =
      0;                          ///< rows whose source and slot lie on different nodes, each as often as it is moved
  std::uint64_t wire_bytes = 0;   ///< rows whose source and slot lie on different ranks
  std::uint64_t moved_bytes = 0;  ///< read plus written
  /// Several machines, for systems that choose forwarders: bytes sent or received by the busiest NIC.
  std::uint64_t heaviest_link_bytes = 0;
};

/// On a device with --sms: rates on few multiprocessors, and beside a GEMM.
struct FewSmsResult {
  std::int32_t sms_seen = 0;  ///< number that ran kernels of the ranks' streams
  double store_gbps = 0;      ///< of kernels that only store, on these multiprocessors
  double limit_gbps =
      0;  ///< upper bound of the rate of delivered rows: the store rate, or less if the device's memory is slower
  // Rows delivered per second, as shares of the limit.
  double dispatch_share = 0;
  double combine_share = 0;
  double dispatch_kernel_share = 0;
  double combine_kernel_share = 0;
  // A matrix product, and pairs of dispatch and combine beside it; 0 without cuBLASLt.
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
  std::uint64_t least_heaviest_link_bytes = 0;  ///< several machines: lower bound over all choices of forwarders
  double copy_ceiling_gbps = 0;                 ///< the better of memcpy and streaming copy, read plus written
  double write_ceiling_gbps = 0;
  double read_ceiling_gbps = 0;
  double dispatch_efficiency = 0;
  double combine_efficiency = 0;
  // On a device.
  double planned_dispatch_efficiency = 0;
  double dispatch_kernel_efficiency = 0;
  double combine_kernel_efficiency = 0;
  double pair_ms = 0;  ///< plan, dispatch and combine: time of a graph over the number of pairs in it
  std::optional<FewSmsResult> few_sms = std::nullopt;
  // The same for a graph with time stamps between operations.
  double graph_dispatch_ms = 0;  ///< including planning
  double graph_combine_ms = 0;
  double stamped_pair_ms = 0;  ///< like pair_ms; the difference is the cost of the stamps
};

/// Collective. Verifies every system, then measures them in turn within each iteration. Same result on all ranks.
ShuffleResult measure(World& world, const ShuffleConfig& config);

/// The same for tokens on a device. Collective over threads of one process that share its current device. Throws
/// Error(unsupported) in builds without CUDA.
ShuffleResult measure_on_device(World& world, const ShuffleConfig& config);

/// Throws Error(unsupported) if there is no device, or in builds without CUDA. Sets CUDA_DEVICE_MAX_CONNECTIONS so that
/// many ranks can wait for each other on one device; call it before CUDA starts.
void prepare_device();

}  // namespace shunt::bench
