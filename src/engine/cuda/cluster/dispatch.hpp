// Dispatch for devices of several nodes: token rows to the slots of their experts.
#pragma once

#include <array>

#include "engine/cuda/cluster/shuffle.hpp"

namespace shunt::device {

class ClusterDispatch final : public ClusterShuffle {
 public:
  /// This rank's output: its rows, or their scales.
  struct Output {
    Tensor received;   ///< peers write into it
    Tensor copy_into;  ///< the caller's tensor if peers can't write into it; else empty
  };

  struct Inputs {
    Place place;
    ConstTensor x;            ///< as it travels
    ConstTensor scales;       ///< for fp8 x; else empty
    ConstTensor to_quantise;  ///< source of x and scales; empty if these are complete
    Output rows;
    Output row_scales;
  };

  ClusterDispatch(const Context& context, const Announcement& announcement, Inputs inputs)
      : ClusterShuffle(context, announcement, std::move(inputs.place)), in_(std::move(inputs)) {}

  bool finish() override {
    if (!copied_) {
      bool copies = false;
      for (const Output* output : {&in_.rows, &in_.row_scales}) {
        if (output->copy_into.bytes() == 0) continue;
        lane().launch(CopyBytes{output->received.data, output->copy_into.data, output->copy_into.bytes()});
        copies = true;
      }
      copied_ = copies ? lane().mark() : [] { return true; };
    }
    return (*copied_)();
  }

 protected:
  // Quantises each token once, before its rows are copied, so that only fp8 is sent.
  bool prepare() override {
    if (in_.to_quantise.rows == 0) return false;
    const std::array made{const_cast<std::byte*>(in_.x.data), const_cast<std::byte*>(in_.scales.data)};
    lane().write(table(), made);
    lane().launch(quantise_tokens(in_.to_quantise, table(), nullptr));
    return true;
  }

  [[nodiscard]] std::vector<std::byte*> rows_by_rank(std::span<const Announcement> peers) override {
    std::vector<std::byte*> rows;
    append_rows(rows, peers, &Announcement::offset, in_.x.row_bytes());
    if (has_scales()) append_rows(rows, peers, &Announcement::second_offset, in_.scales.row_bytes());
    return rows;
  }

  void add_traffic() override {
    add_run(0, in_.x);
    if (has_scales()) add_run(1, in_.scales);
  }

  void launch_near() override {
    copy_near(in_.x, table(), in_.rows);
    if (has_scales()) copy_near(in_.scales, table(1), in_.row_scales);
  }

 private:
  [[nodiscard]] bool has_scales() const { return in_.x.dtype == fp8_e4m3; }

  // One row per token and far node; the forwarder there writes it into all its slots.
  void add_run(std::size_t index, const ConstTensor& x) {
    for (const OutFlowLists& flow : lists().out_flows) traffic_with(flow.peer).out[index] = gather(flow, x);
    for (const InFlowLists& flow : lists().in_flows)
      traffic_with(flow.peer).in[index] = {
          flow.num_tokens, x.row_bytes(),
          [=, this, &flow, &x](std::int64_t first, std::int64_t count, std::byte* memory) {
            scatter(flow.rows, first, count, memory, x.row_bytes(), x.row_bytes(),
                    table(static_cast<std::int32_t>(index)));
          }};
  }

  void copy_near(const ConstTensor& x, std::byte* const* out, const Output& output) {
    lane().launch(CopyRows{.x = x.data,
                           .out = out,
                           .segments = list(lists().near),
                           .num_segments = lists().near.size,
                           .row_bytes = x.row_bytes(),
                           .stop = nullptr});
    zero_padding(output.received.data, x.row_bytes());
  }

  Inputs in_;
  std::optional<Lane::Mark> copied_;
};

}  // namespace shunt::device
