// Devices and the links between them, in a few numbers: what steps are scheduled and experts placed for.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/presets.hpp"

namespace shunt {

/// Times over sizes, as measured: (bytes of the busiest rank, seconds), ascending.
using Curve = std::vector<std::pair<double, double>>;

struct Cluster {
  std::string name, origin, device;
  std::int32_t nodes = 1, ranks_per_node = 1;

  // One rank's device.
  double f32_flops = 1, half_flops = 1;  ///< sustained by a large matrix product, per second
  double memory_bytes_per_s = 1;
  std::int64_t processors = 1;  ///< that work on tiles side by side
  std::int64_t tile = 128;
  double kernel_s = 0;  ///< added to each compute op

  // Links.
  double near_bytes_per_s = 1;                ///< of a rank, to the others of its node
  double far_bytes_per_s = 1;                 ///< of a node, all its NICs together, as sustained
  double all_to_all_s = 0, all_reduce_s = 0;  ///< added to each
  Curve all_to_all, all_reduce;               ///< if measured, instead of links' rates
  std::int32_t comm_workers = 2;              ///< communication in flight at once

  /// Times of compute while communication is in flight, and of communication while compute is, over times alone.
  double compute_slowdown = 1, comm_slowdown = 1;

  [[nodiscard]] std::int32_t ranks() const { return nodes * ranks_per_node; }

  /// Throws Error(invalid_argument) with source and key.
  static Cluster from_json(const std::string& source, const std::string& text);
  /// A preset, one with a number of ranks ("a100x64"), or a file. Throws as load_description and from_json.
  static Cluster load(const std::string& name_or_file, const std::string& also = "");
};

/// Those of presets/clusters.
std::span<const Preset> cluster_presets();

}  // namespace shunt
