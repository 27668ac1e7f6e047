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

  ClusterCombineBackward(const Context& context, const Announcement& announcement, Inputs inputs)
      : ClusterShuffle(context, announcement, std::move(inputs.place)), in_(std::move(inputs)) {
    for (const InFlowLists& flow : lists().in_flows)
      answers_.push_back(
          lane().allocate(static_cast<std::size_t>(flow.num_tokens * flow.most_targets) * sizeof(float)));
  }

 protected:
  bool prepare() override { return publish(in_.expert_out, in_.published); }

  // Gradients of every rank's rows, every rank's expert outputs, and this rank's gradients of weights.
  [[nodiscard]] std::vector<std::byte*> rows_by_rank(std::span<const Announcement> peers) override {
    std::vector<std::byte*> rows;
    append_rows(rows, peers, &Announcement::offset, in_.gradients.row_bytes());
    if (has_weights())
      append_rows(rows, peers, &Announcement::second_offset, in_.gradients.row_bytes());
    else
      rows.resize(2 * peers.size(), nullptr);
    rows.push_back(in_.weights.data);
    return rows;
  }

  void add_traffic() override {
    for (const OutFlowLists& flow : lists().out_flows) add_flow(flow);
    for (std::size_t i = 0; i < answers_.size(); ++i)
      add_flow(lists().in_flows[i], reinterpret_cast<float*>(answers_[i].get()));
  }

  void launch_near() override {
    // Writes zeros for the targets of far ranks; their gradients are unpacked later on the lane.
    if (has_weights())
      dot(in_.grad_out.data, list(lists().near_terms), plan().topk, plan().num_tokens,
          reinterpret_cast<float*>(in_.weights.data));
    scale(in_.grad_out.data, list(lists().near), lists().near.size);
    zero_padding(in_.gradients.data, in_.gradients.row_bytes());
  }

 private:
  // Indices of the runs exchanged with a far rank, in each direction.
  static constexpr std::size_t kRows = 0, kAnswers = 1;

  [[nodiscard]] bool has_weights() const { return in_.weights.data != nullptr; }

  void scale(const std::byte* x, const Segment* segments, std::int64_t num_segments) {
    lane().launch(ScaleRows{.x = x,
                            .out = table(),
                            .segments = segments,
                            .num_segments = num_segments,
                            .hidden = in_.grad_out.cols,
                            .x_dtype = in_.grad_out.dtype,
                            .out_dtype = in_.gradients.dtype,
                            .stop = nullptr});
  }

  void dot(const std::byte* x, const Term* terms, std::int32_t width, std::int64_t num_tokens, float* result) {
    lane().launch(DotRows{.x = x,
                          .rows = table(1),
                          .terms = terms,
                          .result = result,
                          .num_tokens = num_tokens,
                          .topk = width,
                          .hidden = in_.grad_out.cols,
                          .x_dtype = in_.grad_out.dtype,
                          .row_dtype = in_.gradients.dtype,
                          .stop = nullptr});
  }

  void add_flow(const OutFlowLists& flow) {
    PeerTraffic& traffic = traffic_with(flow.peer);
    traffic.out[kRows] = gather(flow, in_.grad_out);
    if (!has_weights()) return;
    const std::size_t answer_bytes = static_cast<std::size_t>(flow.most_targets) * sizeof(float);
    // Scatters from the forwarder's order to this rank's order, as rows of one float.
    traffic.in[kAnswers] = {flow.tokens.size, answer_bytes,
                            [=, this, &flow](std::int64_t first, std::int64_t count, std::byte* memory) {
                              scatter(flow.choices, first, count, memory, answer_bytes, sizeof(float), table(2));
                            }};
  }

  void add_flow(const InFlowLists& flow, float* answers) {
    PeerTraffic& traffic = traffic_with(flow.peer);
    const std::size_t row_bytes = in_.grad_out.row_bytes();
    const std::int64_t width = flow.most_targets;
    traffic.in[kRows] = {
        flow.num_tokens, row_bytes, [=, this, &flow](std::int64_t first, std::int64_t count, std::byte* memory) {
          scale(before(memory, first, row_bytes), list(flow.rows.all) + flow.rows.begin_of(first),
                flow.rows.num_of(first, count));
          if (has_weights())
            dot(memory, list(flow.terms) + first * width, flow.most_targets, count, answers + first * width);
        }};
    if (!has_weights()) return;
    const std::size_t answer_bytes = static_cast<std::size_t>(width) * sizeof(float);
    traffic.out[kAnswers] = {flow.num_tokens, answer_bytes,
                             [=, this](std::int64_t first, std::int64_t count, std::byte* memory) {
                               lane().launch(CopyBytes{reinterpret_cast<const std::byte*>(answers + first * width),
                                                       memory, static_cast<std::size_t>(count) * answer_bytes});
                             },
                             true};
  }

  Inputs in_;
  std::vector<std::shared_ptr<std::byte>> answers_;  // gradients of a far source's weights, by flow
};

}  // namespace shunt::device
