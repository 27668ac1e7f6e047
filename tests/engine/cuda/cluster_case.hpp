// One rank's part in a random case, on a device between nodes.
#pragma once

#include <functional>

#include "engine/cuda/cluster/lane.hpp"
#include "engine/cuda/cluster/nccl_network.hpp"
#include "shunt/device_cluster_engine.hpp"
#include "support/shuffle_case.hpp"

namespace shunt::test {

/// Whether a device between nodes can do what the case asks.
bool is_for_clusters(const ShuffleCase& all);
/// The first so many of them.
std::vector<ShuffleCase> cluster_cases(const Topology& topology, std::size_t count);

struct ClusterDevice {
  /// A lane for one engine.
  std::function<std::shared_ptr<device::Lane>(const Engine& engine, std::uint64_t seed)> make_lane;
  /// Null: the world's own network.
  std::function<std::shared_ptr<device::NcclNetwork>(device::Lane& lane)> join_nccl = [](device::Lane&) {
    return nullptr;
  };
  /// Memory of the device that peers can't address; valid until the case is over.
  std::function<std::byte*(std::size_t bytes)> take_plain;
  /// A stream of the caller's, or null.
  Stream stream = nullptr;
  /// Puts a write of device memory on it, which is done late.
  std::function<void(device::Lane& lane, std::byte* to, std::span<const std::byte> bytes)> write_late = {};
};

/// Makes an engine, plans, issues all four operations and compares every bit with the reference, in any order.
/// Collective. Throws what differs, with the case's seed and description.
void run_cluster_case(World& world, const ClusterDevice& device, const ShuffleCase& all);

}  // namespace shunt::test
