// Through host memory and the world's own network.
#pragma once

#include <vector>

#include "engine/cuda/cluster/far_route.hpp"
#include "engine/cuda/cluster/packed_stream.hpp"
#include "engine/cuda/cluster/unpacked_stream.hpp"

namespace shunt::device {

class SliceRoute final : public FarRoute {
 public:
  explicit SliceRoute(std::vector<PeerTraffic> traffic);

  Work pump(Lane& lane) override;
  bool is_all_launched() override;
  bool finish() override;

 private:
  struct Peer {
    bool answers;  // as in PeerTraffic
    PackedStream out;
    UnpackedStream in;
  };
  std::vector<Peer> peers_;
};

}  // namespace shunt::device
