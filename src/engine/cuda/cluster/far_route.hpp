// What an operation exchanges with far ranks, and the two ways it travels.
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
  /// Launches what packs segments [first, first + count) into `memory`, or unpacks them from there.
  std::function<void(std::int64_t first, std::int64_t count, std::byte* memory)> launch = {};
  /// Packing reads what earlier runs have unpacked, so it starts when those are launched. Else packing needs nothing of
  /// what comes.
  bool answers = false;
};

/// What is exchanged with one far rank. Both ends know from the plan how much it is.
struct PeerTraffic {
  RankId peer;
  SliceChannel* channel;
  std::array<Run, 2> out{};
  std::array<Run, 2> in{};
};

/// One operation's traffic under way.
class FarRoute {
 public:
  virtual ~FarRoute() = default;

  /// Launches and sends what can be; returns what became of it, but never Work::finished.
  virtual Work pump(Lane& lane) = 0;
  /// All that comes has been unpacked, or will be by what is launched.
  virtual bool is_all_launched() = 0;
  /// Called once all that was launched is done, until it returns true: no peer is needed any more.
  virtual bool finish() = 0;
};

/// Through host memory and the world's own network.
std::unique_ptr<FarRoute> make_slice_route(std::vector<PeerTraffic> traffic);

/// Through NCCL, from device memory to device memory.
std::unique_ptr<FarRoute> make_nccl_route(std::unique_ptr<NcclNetwork::Turn> turn, std::vector<PeerTraffic> traffic);

}  // namespace shunt::device
