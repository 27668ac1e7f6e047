// An operation's traffic with far ranks, and its two routes: slices through host memory, or NCCL.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/cuda/cluster/lane.hpp"
#include "engine/cuda/cluster/nccl_network.hpp"
#include "engine/operation.hpp"
#include "engine/slice_channel.hpp"
#include "shunt/ids.hpp"

namespace shunt::device {

/// Segments of equal size, one after the other.
struct Run {
  std::int64_t num_segments = 0;
  std::size_t segment_bytes = 0;
  /// Launches the kernel that packs segments [first, first + count) into `memory`, or unpacks them from it.
  std::function<void(std::int64_t first, std::int64_t count, std::byte* memory)> launch = {};
  /// Packing reads what earlier runs unpack, so it is launched after them. Otherwise packing is independent of what is
  /// received.
  bool answers = false;
};

/// The traffic with one far rank. Both ends know its size from the plan.
struct PeerTraffic {
  RankId peer;
  SliceChannel* channel;
  std::array<Run, 2> out{};
  std::array<Run, 2> in{};
};

/// Carries one operation's traffic.
class FarRoute {
 public:
  virtual ~FarRoute() = default;

  /// Launches and sends as much as possible. Never returns Work::finished.
  virtual Work pump(Lane& lane) = 0;
  /// True once the kernels that unpack everything received are launched.
  virtual bool is_all_launched() = 0;
  /// Called once everything launched is complete, until it returns true: then no peer is needed any more.
  virtual bool finish() = 0;
};

/// Through pinned host memory, by the network that joined the world.
std::unique_ptr<FarRoute> make_slice_route(std::vector<PeerTraffic> traffic);

/// By NCCL, from device memory to device memory.
std::unique_ptr<FarRoute> make_nccl_route(std::unique_ptr<NcclNetwork::Turn> turn, std::vector<PeerTraffic> traffic);

}  // namespace shunt::device
