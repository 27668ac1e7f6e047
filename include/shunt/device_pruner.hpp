// Pruning on a device. Only in builds with CUDA (SHUNT_CUDA); link shunt::device.
#pragma once

#include <cstdint>
#include <memory>

#include "shunt/device_plan.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/pruning.hpp"
#include "shunt/stream.hpp"
#include "shunt/topology.hpp"

namespace shunt {

/// Gives the bits that prune() gives on the host. For one map and one set of options, whose tables it keeps on the
/// device.
class DevicePruner {
 public:
  struct Impl;

  /// options.similarity is read during the call only. device: −1 is the calling thread's current one. Allocates memory
  /// and loads a kernel, which may wait for the device, as destroying it may: not while ranks wait for each other
  /// there. Throws Error(invalid_argument) for what prune() refuses, too.
  DevicePruner(const ExpertMap& map, const Topology& topology, const PruneOptions& options, std::int64_t max_tokens,
               std::int32_t device = -1);

  /// Puts the work on the stream; the host waits for nothing, and a CUDA graph may hold it. In device memory: scores,
  /// [tokens, experts of the map] or null; experts and weights, [tokens, topk], which must not overlap the routing. A
  /// token that prune() would refuse passes as it is: of an expert that does not exist, or is named twice, the plan
  /// will complain. Scores that are not finite are never chosen. Calls one at a time, and no call while a graph that
  /// holds one is replayed.
  void prune(const DeviceRouting& routing, const float* scores, std::int32_t* experts, float* weights, Stream stream);

  /// Of the tokens that were pruned last, on this stream. The host waits for it.
  [[nodiscard]] PruneReport report(Stream stream) const;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace shunt
