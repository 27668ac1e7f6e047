#include "engine/cuda/cluster/slice_route.hpp"

#include <algorithm>
#include <limits>

namespace shunt::device {
namespace {

constexpr std::size_t kAllRuns = std::numeric_limits<std::size_t>::max();

}  // namespace

SliceRoute::SliceRoute(std::vector<PeerTraffic> traffic) {
  for (PeerTraffic& each : traffic)
    peers_.push_back({each.answers, PackedStream(*each.channel, std::move(each.out)),
                      UnpackedStream(*each.channel, std::move(each.in))});
}

Work SliceRoute::pump(Lane& lane) {
  bool moved = false;
  for (Peer& peer : peers_) {
    moved |= peer.in.pump(lane);
    moved |= peer.out.pump(lane, peer.answers ? peer.in.current_run() + 1 : kAllRuns);
  }
  return moved ? Work::moved : Work::idle;
}

bool SliceRoute::is_all_launched() {
  return std::ranges::all_of(peers_, [](Peer& peer) { return peer.in.finish(); });
}

bool SliceRoute::finish() {
  return std::ranges::all_of(peers_, [](const Peer& peer) { return peer.out.is_finished(); });
}

}  // namespace shunt::device
