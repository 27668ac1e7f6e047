// Combine, and the gradient of dispatch, for devices of several nodes: expert outputs back to their tokens.
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

  ClusterCombine(const Context& context, const Announcement& announcement, Inputs inputs)
      : ClusterShuffle(context, announcement, std::move(inputs.place)), in_(std::move(inputs)) {
    for (const OutFlowLists& flow : lists().out_flows)
      parts_of_flow_.push_back(lane().allocate(static_cast<std::size_t>(flow.num_parts) * part_bytes()));
    if (in_.order != SumOrder::mixed) return;
    const std::int64_t num_widened = lists().far_parts.size + lists().near_parts.size / plan().topk;
    widened_ = lane().allocate(static_cast<std::size_t>(num_widened * in_.out.cols) * sizeof(float));
  }

 protected:
  bool prepare() override { return publish(in_.rows, in_.published); }

  [[nodiscard]] std::vector<std::byte*> rows_by_rank(std::span<const Announcement> peers) override {
    std::vector<std::byte*> rows;
    append_rows(rows, peers, &Announcement::offset, in_.rows.row_bytes());
    for (const auto& parts : parts_of_flow_) rows.push_back(parts.get());
    rows.push_back(widened_.get());
    return rows;
  }

  void add_traffic() override {
    for (const InFlowLists& flow : lists().in_flows) traffic_with(flow.peer).out[0] = sums_for(flow);
    for (std::size_t i = 0; i < lists().out_flows.size(); ++i) {
      const OutFlowLists& flow = lists().out_flows[i];
      traffic_with(flow.peer).in[0] = {
          flow.num_parts, part_bytes(), [this, i](std::int64_t first, std::int64_t count, std::byte* memory) {
            lane().launch(CopyBytes{memory, parts_of_flow_[i].get() + static_cast<std::size_t>(first) * part_bytes(),
                                    static_cast<std::size_t>(count) * part_bytes()});
          }};
    }
  }

  void launch_near() override {
    if (in_.order != SumOrder::mixed) return;
    ReduceRows sums = reduce(lists().near_parts, plan().topk);
    sums.result = widened_.get() + static_cast<std::size_t>(lists().far_parts.size * in_.out.cols) * sizeof(float);
    sums.result_dtype = f32;
    lane().launch(sums);
  }

  void launch_last() override {
    ReduceRows sums = reduce(lists().sums, plan().topk);
    sums.result = in_.out.data;
    if (in_.order == SumOrder::mixed) {
      ReduceRows widen = reduce(lists().far_parts, 1);
      widen.result = widened_.get();
      widen.row_dtype = in_.format.wire;
      widen.result_dtype = f32;
      lane().launch(widen);
      sums.rows = table(1) + lists().out_flows.size();
      sums.row_dtype = f32;
    }
    lane().launch(sums);
  }

 private:
  [[nodiscard]] std::size_t part_bytes() const {
    return static_cast<std::size_t>(in_.out.cols) *
           size_of(in_.order == SumOrder::flat ? in_.format.terms : in_.format.wire);
  }

  [[nodiscard]] ReduceRows reduce(const ListIn<Term>& terms, std::int32_t width) const {
    return {.rows = table(),
            .result = nullptr,
            .terms = list(terms),
            .num_tokens = width > 0 ? terms.size / width : 0,
            .topk = width,
            .hidden = in_.out.cols,
            .row_dtype = in_.format.terms,
            .wire_dtype = in_.format.wire,
            .result_dtype = in_.format.result,
            .weighted = in_.weighted,
            .stop = nullptr};
  }

  /// For a far source's tokens: the sum of each token's rows on this node or, for `flat`, the rows themselves.
  [[nodiscard]] Run sums_for(const InFlowLists& flow) {
    const bool is_flat = in_.order == SumOrder::flat;
    ReduceRows sums = reduce(is_flat ? flow.flat_terms : flow.terms, is_flat ? 1 : flow.most_targets);
    sums.result_dtype = is_flat ? in_.format.terms : in_.format.wire;
    sums.weighted = in_.weighted && !is_flat;
    return {sums.num_tokens, part_bytes(), [this, sums](std::int64_t first, std::int64_t count, std::byte* memory) {
              ReduceRows batch = sums;
              batch.terms += first * sums.topk;
              batch.num_tokens = count;
              batch.result = memory;
              lane().launch(batch);
            }};
  }

  Inputs in_;
  std::vector<std::shared_ptr<std::byte>> parts_of_flow_;  // received from far nodes
  std::shared_ptr<std::byte> widened_;                     // `mixed`: [far and near parts, hidden] f32
};

}  // namespace shunt::device
