// The gradient of combine: weighted rows to the experts, and a dot product per routing weight.
#pragma once

#include "engine/cuda/cluster/shuffle.hpp"

namespace shunt::device {

class ClusterCombineBackward final : public ClusterShuffle {
 public:
  struct Inputs {
    Place place;
    ConstTensor grad_out;
    ConstTensor expert_out;
    Tensor published;  ///< as in ClusterCombine; empty in `token_unique`, which has no gradients of weights
    Tensor gradients;  ///< this rank's rows; peers write into it
    Tensor weights;    ///< [tokens, topk] f32
  };

  ClusterCombineBackward(const Context& context, const Announcement& announcement, Inputs inputs);

 protected:
  bool prepare() override { return publish(in_.expert_out, in_.published); }
  [[nodiscard]] std::vector<std::byte*> rows_by_rank(std::span<const Announcement> peers) override;
  void add_traffic() override;
  void launch_near() override;

 private:
  // A far rank's runs, each way.
  static constexpr std::size_t kRows = 0, kAnswers = 1;

  [[nodiscard]] bool has_weights() const { return in_.weights.data != nullptr; }
  void scale(const std::byte* x, const Segment* segments, std::int64_t num_segments);
  void dot(const std::byte* x, const Term* terms, std::int32_t width, std::int64_t num_tokens, float* result);
  void add_flow(const OutFlowLists& flow);
  void add_flow(const InFlowLists& flow, float* answers);

  Inputs in_;
  std::shared_ptr<std::byte> answers_;  // gradients of far sources' weights, flow by flow
};

}  // namespace shunt::device
