// What an operation exchanges with far ranks, whichever way it travels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/slice_channel.hpp"
#include "shunt/ids.hpp"

namespace shunt::device {

/// Segments of equal size, one after the other.
struct Run {
  std::int64_t num_segments = 0;
  std::size_t segment_bytes = 0;
  /// Launches what packs segments [first, first + count) into `memory`, or unpacks them from there.
  std::function<void(std::int64_t first, std::int64_t count, std::byte* memory)> launch = {};
};

/// With one far rank. Both ends know from the plan how much it is.
struct PeerTraffic {
  RankId peer;
  std::vector<Run> out;
  std::vector<Run> in;
  /// Packing a run reads what runs of smaller index have unpacked, and nothing else that comes from far ranks: so run i
  /// is packed when those are launched. Else packing needs nothing of what comes.
  bool answers = false;
  SliceChannel* channel = nullptr;  ///< set once the operation has begun
};

/// Collects what flows contribute; a far rank may be the other end of two.
class TrafficByPeer {
 public:
  /// `answers` as in PeerTraffic.
  TrafficByPeer(std::size_t num_runs, bool answers) : num_runs_(num_runs), answers_(answers) {}

  void pack(RankId peer, std::size_t index, Run run) { with(peer).out[index] = std::move(run); }
  void unpack(RankId peer, std::size_t index, Run run) { with(peer).in[index] = std::move(run); }
  [[nodiscard]] std::vector<PeerTraffic> take() { return std::move(peers_); }

 private:
  PeerTraffic& with(RankId peer) {
    for (PeerTraffic& known : peers_)
      if (known.peer == peer) return known;
    return peers_.emplace_back(PeerTraffic{peer, std::vector<Run>(num_runs_), std::vector<Run>(num_runs_), answers_});
  }

  std::size_t num_runs_;
  bool answers_;
  std::vector<PeerTraffic> peers_;
};

}  // namespace shunt::device
