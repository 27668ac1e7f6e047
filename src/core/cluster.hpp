// Performance model of devices and the links between them, for scheduling steps and placing experts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/presets.hpp"

namespace shunt {

/// Measured times by size: (bytes of the busiest rank, seconds), ascending.
using Curve = std::vector<std::pair<double, double>>;

struct Cluster {
  std::string name, origin, device;
  std::int32_t nodes = 1, ranks_per_node = 1;

  // Each rank's device.
  double f32_flops = 1, half_flops = 1;  ///< sustained by a large matrix product, per second
  double memory_bytes_per_s = 1;
  std::int64_t processors = 1;  ///< multiprocessors, which work on tiles in parallel
  std::int64_t tile = 128;
  double kernel_s = 0;  ///< added to each compute op

  // Links.
  double near_bytes_per_s = 1;                ///< per rank, to the others of its node
  double far_bytes_per_s = 1;                 ///< per node, all its NICs together, sustained
  double all_to_all_s = 0, all_reduce_s = 0;  ///< latency added to each operation
  Curve all_to_all, all_reduce;               ///< if measured; they replace the links' rates
  std::int32_t comm_workers = 2;              ///< communication operations in flight at once

  /// Factors by which compute is slower while communication is in flight, and communication while compute is.
  double compute_slowdown = 1, comm_slowdown = 1;

  [[nodiscard]] std::int32_t ranks() const { return nodes * ranks_per_node; }

  /// Throws Error(invalid_argument) with source and key.
  static Cluster from_json(const std::string& source, const std::string& text);
  /// name_or_file: a preset, a preset with a number of ranks ("a100x64"), or a file. Throws as load_description and
  /// from_json.
  static Cluster load(const std::string& name_or_file, const std::string& also = "");
};

/// The presets of presets/clusters.
std::span<const Preset> cluster_presets();

}  // namespace shunt
