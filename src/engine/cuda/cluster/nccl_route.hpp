// Through NCCL, from device memory to device memory.
#pragma once

#include <memory>
#include <vector>

#include "engine/cuda/cluster/far_route.hpp"
#include "engine/cuda/cluster/nccl_network.hpp"
#include "engine/cuda/cluster/traffic.hpp"

namespace shunt::device {

/// In rounds: pack one batch for every peer, exchange them as one group, unpack. Batch n of two ranks travels in round
/// n on both, so no round waits for a later one of another rank's. At the end ranks bid farewell by the world's own
/// network: until then each is awaited, which the host could not tell from the device alone.
class NcclRoute final : public FarRoute {
 public:
  NcclRoute(std::unique_ptr<NcclNetwork::Turn> turn, std::vector<PeerTraffic> traffic);

  Work pump(Lane& lane) override;
  bool is_all_launched() override { return is_over(); }
  bool finish() override;

 private:
  struct Batch {
    std::int64_t first = 0;
    std::int64_t count = 0;  // 0: no more
  };

  [[nodiscard]] bool is_over() const { return turn_ == nullptr; }
  /// Peers have begun this operation: else the device would wait for them.
  [[nodiscard]] bool are_all_here() const;
  /// What was exchanged last is on the lane.
  [[nodiscard]] bool has_started() const;
  [[nodiscard]] Batch batch_of(const Run& run) const;
  /// Packs and exchanges; false if nothing is left of this run.
  bool begin_round(Lane& lane);
  void unpack();

  std::shared_ptr<NcclNetwork> network_;
  std::unique_ptr<NcclNetwork::Turn> turn_;  // none: all is launched
  std::vector<PeerTraffic> peers_;
  std::size_t num_runs_ = 0;
  std::size_t run_ = 0;
  std::int64_t round_ = 0;
  bool is_exchanging_ = false;
};

}  // namespace shunt::device
