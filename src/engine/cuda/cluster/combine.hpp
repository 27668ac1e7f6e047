// Expert outputs back to their tokens.
#pragma once

#include "engine/cuda/cluster/shuffle.hpp"
#include "kernels/reduce.hpp"

namespace shunt::device {

class ClusterCombine final : public ClusterShuffle {
 public:
  struct Inputs {
    Place place;
    ConstTensor rows;
    Tensor published;  ///< a copy of the rows where peers can read them; the rows themselves if they can
    ReduceFormat format;
    SumOrder order;
    bool weighted;  ///< false for the gradient of dispatch
    Tensor out;
  };

  ClusterCombine(const Context& context, const Announcement& announcement, Inputs inputs);

 protected:
  bool prepare() override { return publish(in_.rows, in_.published); }
  [[nodiscard]] std::vector<std::byte*> rows_by_rank(std::span<const Announcement> peers) override;
  void add_traffic() override;
  void launch_near() override;
  void launch_last() override;

 private:
  [[nodiscard]] std::size_t part_bytes() const;
  [[nodiscard]] ReduceRows reduce(const ListIn<Term>& terms, std::int32_t width) const;
  [[nodiscard]] Run sums_for(const InFlowLists& flow);

  Inputs in_;
  std::vector<std::byte*> parts_of_flow_;
  std::shared_ptr<std::byte> far_parts_;  // what far nodes send, flow by flow
  std::shared_ptr<std::byte> widened_;    // `mixed`: [far and near parts, hidden] f32
};

}  // namespace shunt::device
