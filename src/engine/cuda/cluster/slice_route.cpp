#include "engine/cuda/cluster/slice_route.hpp"

#include <algorithm>
#include <limits>

namespace shunt::device {
namespace {

constexpr std::size_t kAllRuns = std::numeric_limits<std::size_t>::max();

}  // namespace

SliceRoute::SliceRoute(Streams& streams, std::vector<PeerTraffic> traffic) {
  for (PeerTraffic& each : traffic)
    peers_.push_back({each.peer, each.answers, PackedStream(streams, each.peer, std::move(each.out)),
                      UnpackedStream(streams, each.peer, std::move(each.in))});
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

std::vector<RankId> SliceRoute::awaited() const {
  std::vector<RankId> awaited;
  for (const Peer& peer : peers_)
    if (!peer.out.is_finished() || !peer.in.is_all_here()) awaited.push_back(peer.rank);
  return awaited;
}

}  // namespace shunt::device
