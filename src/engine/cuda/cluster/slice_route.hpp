// Through host memory and the world's own network.
#pragma once

#include <vector>

#include "engine/cuda/cluster/far_route.hpp"
#include "engine/cuda/cluster/packed_stream.hpp"
#include "engine/cuda/cluster/unpacked_stream.hpp"

namespace shunt::device {

class SliceRoute final : public FarRoute {
 public:
  SliceRoute(Streams& streams, std::vector<PeerTraffic> traffic);

  Work pump(Lane& lane) override;
  bool is_all_launched() override;
  bool finish() override;
  [[nodiscard]] std::vector<RankId> awaited() const override;

 private:
  struct Peer {
    RankId rank;
    bool answers;  // as in PeerTraffic
    PackedStream out;
    UnpackedStream in;
  };
  std::vector<Peer> peers_;
};

}  // namespace shunt::device
