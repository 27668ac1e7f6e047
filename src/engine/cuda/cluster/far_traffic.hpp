// An operation's traffic with all far ranks, through host memory and the world's own network.
#pragma once

#include <vector>

#include "engine/cuda/cluster/packed_stream.hpp"
#include "engine/cuda/cluster/unpacked_stream.hpp"

namespace shunt::device {

class FarTraffic {
 public:
  /// No streams are needed where there is no traffic.
  FarTraffic(Streams* streams, std::vector<PeerTraffic> traffic);

  /// Launches and sends what can be; true if something moved.
  bool pump(Lane& lane);
  /// All that comes has been unpacked, or will be by what is launched.
  bool is_all_launched();
  [[nodiscard]] bool is_all_sent() const;
  /// Peers without which it can't go on.
  [[nodiscard]] std::vector<RankId> awaited() const;

 private:
  struct Peer {
    RankId rank;
    PackedStream out;
    UnpackedStream in;
  };
  std::vector<Peer> peers_;
};

}  // namespace shunt::device
