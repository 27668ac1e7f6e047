// Tokens to experts.
#pragma once

#include "engine/cuda/cluster/shuffle.hpp"

namespace shunt::device {

class ClusterDispatch final : public ClusterShuffle {
 public:
  struct Inputs {
    Place place;
    ConstTensor x;
    Tensor received;   ///< this rank's rows; peers write into it
    Tensor copy_into;  ///< where the caller wants them, if not there; else empty
  };

  ClusterDispatch(const Context& context, const Announcement& announcement, Inputs inputs)
      : ClusterShuffle(context, announcement, std::move(inputs.place)), in_(std::move(inputs)) {}

  bool finish() override;

 protected:
  [[nodiscard]] std::vector<std::byte*> rows_by_rank(std::span<const Announcement> peers) override;
  [[nodiscard]] std::vector<PeerTraffic> traffic() override;
  void launch_near() override;

 private:
  Inputs in_;
  std::optional<Lane::Mark> copied_;
};

}  // namespace shunt::device
