// The gradient of combine: weighted rows to the experts, and a dot product per routing weight.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>

#include "engine/shuffle.hpp"
#include "kernels/dot.hpp"
#include "kernels/scale.hpp"
#include "shunt/tensor.hpp"

namespace shunt {

/// The rank that owns a token reads the outputs of near experts in place, so the gradients of its weights end up where
/// they are needed. For a far source, the forwarder reads them and sends the gradients of weights back.
class CombineBackward final : public Shuffle {
 public:
  struct Inputs {
    ConstTensor grad_out;
    std::shared_ptr<const void> expert_out_owner;  ///< keeps this rank's announced expert outputs alive
    DType expert_dtype;
    Block output;         ///< this rank's gradient rows; peers write into it
    bool has_weights;     ///< false in `token_unique`
    float* grad_weights;  ///< [tokens, topk], zero at first
  };

  CombineBackward(const Context& context, const Announcement& announcement, Inputs inputs)
      : Shuffle(context, announcement), in_(std::move(inputs)) {}

  void begin(std::span<const Announcement> peers) override {
    row_bytes_ = hidden() * size_of(in_.expert_dtype);
    append_rows(gradients_of_, peers, &Announcement::offset, row_bytes_);
    if (in_.has_weights) append_rows(expert_out_of_, peers, &Announcement::second_offset, row_bytes_);
    store_ = store_for(plan().targets.size() * row_bytes_);
    for (const auto& each : out_flows()) peer(each.channel).out = each;
    for (const auto& each : in_flows()) peer(each.channel).in = each;
  }

  Work work() override {
    bool moved = false;
    for (Peer& each : peers_) moved |= send(each);
    const std::int64_t end = end_of_chunk(next_token_, row_bytes_ * static_cast<std::size_t>(plan().topk));
    for (; next_token_ < end; ++next_token_, moved = true) send_near(next_token_);
    for (Peer& each : peers_) moved |= receive(each);
    const bool is_over = std::ranges::all_of(
        peers_, [](const Peer& each) { return !each.channel->is_sending() && each.channel->has_ended(); });
    if (next_token_ < plan().num_tokens || !is_over) return progress_of(moved);
    zero_padding(plan(), in_.output.data, row_bytes_);
    // Partner: the release of the `done` signal that follows.
    flush_streaming();
    return Work::finished;
  }

 private:
  /// The traffic with one far rank. Each direction carries the sender's gradient rows, then the gradients of the
  /// receiver's weights, which depend only on the rows of the other direction.
  struct Peer {
    SliceChannel* channel;
    std::optional<FlowCursor<OutFlow>> out{};
    std::optional<FlowCursor<InFlow>> in{};
    std::vector<float> weight_gradients{};  // by target of `in`
    bool has_answered = false;              // weight_gradients were sent
    bool is_answered = false;               // the weight gradients of `out` were received
  };

  [[nodiscard]] std::size_t hidden() const { return static_cast<std::size_t>(in_.grad_out.cols); }

  Peer& peer(SliceChannel* channel) {
    const auto known = std::ranges::find(peers_, channel, &Peer::channel);
    if (known != peers_.end()) return *known;
    channel->begin_sending();
    channel->begin_receiving();
    return peers_.emplace_back(Peer{channel});
  }

  void send_near(std::int64_t token) {
    for (const Target& target : plan().targets_of(token)) {
      if (!gradients_of_[target.rank.index()]) continue;
      const float weight_gradient = write_target(in_.grad_out.row(token), target);
      if (in_.has_weights) in_.grad_weights[token * plan().topk + target.choice] = weight_gradient;
    }
  }

  /// Writes the target's gradient row; returns the gradient of its weight.
  float write_target(const std::byte* gradient, const Target& target) {
    const std::size_t offset = target.slot.index() * row_bytes_;
    scale_row(gradient, in_.grad_out.dtype, target.weight, hidden(), gradients_of_[target.rank.index()] + offset,
              in_.expert_dtype, store_);
    if (!in_.has_weights) return 0;
    return dot(gradient, in_.grad_out.dtype, expert_out_of_[target.rank.index()] + offset, in_.expert_dtype, hidden());
  }

  bool send(Peer& to) {
    SliceChannel& channel = *to.channel;
    if (!channel.is_sending()) return false;
    const std::size_t row_bytes = in_.grad_out.row_bytes();
    bool moved = false;
    if (to.out) {
      moved = to.out->send([&](const OutFlow&, std::size_t) { return row_bytes; },
                           [&](const OutFlow& flow, std::size_t i, std::byte* segment) {
                             std::memcpy(segment, in_.grad_out.row(flow.tokens[i]), row_bytes);
                           });
      if (!to.out->is_over()) return moved;
    }
    if (to.in && !to.in->is_over()) {
      // The peer needs these rows before it can send the gradients that this rank waits for.
      channel.flush();
      return moved;
    }
    if (const std::size_t bytes = to.weight_gradients.size() * sizeof(float); bytes > 0 && !to.has_answered) {
      std::byte* const segment = channel.open_segment(bytes);
      if (!segment) return moved;
      std::memcpy(segment, to.weight_gradients.data(), bytes);
      channel.commit();
      to.has_answered = true;
    }
    return channel.finish_sending() || moved;
  }

  bool receive(Peer& from) {
    SliceChannel& channel = *from.channel;
    if (channel.has_ended()) return false;
    const std::size_t row_bytes = in_.grad_out.row_bytes();
    bool moved = false;
    if (from.in) {
      moved = from.in->receive([&](const InFlow&, std::size_t) { return row_bytes; },
                               [&](const InFlow& flow, std::size_t i, const std::byte* gradient) {
                                 for (const Target& target : flow.targets_of(i)) {
                                   const float weight_gradient = write_target(gradient, target);
                                   if (in_.has_weights) from.weight_gradients.push_back(weight_gradient);
                                 }
                               });
      if (!from.in->is_over()) return moved;
    }
    if (from.out && in_.has_weights && !from.is_answered) {
      std::size_t bytes = 0;
      for_answered(*from.out->flow, [&](float&) { bytes += sizeof(float); });
      const std::byte* gradients = channel.front(bytes);
      if (!gradients) return moved;
      for_answered(*from.out->flow, [&](float& gradient) {
        std::memcpy(&gradient, gradients, sizeof(float));
        gradients += sizeof(float);
      });
      channel.pop();
      from.is_answered = true;
    }
    return channel.finish_receiving() || moved;
  }

  /// Calls visit(gradient) for the gradient of each weight of the flow's tokens on the forwarder's node, in order.
  template <class Visit>
  void for_answered(const OutFlow& flow, const Visit& visit) const {
    const NodeId node = plan().topology.node(flow.forwarder);
    for (const std::uint32_t token : flow.tokens)
      for (const Target& target : plan().targets_of(token))
        if (plan().topology.node(target.rank) == node) visit(in_.grad_weights[token * plan().topk + target.choice]);
  }

  Inputs in_;
  std::size_t row_bytes_ = 0;             // of expert rows
  std::vector<std::byte*> gradients_of_;  // by rank; nullptr for far ones
  std::vector<std::byte*> expert_out_of_;
  Store store_ = Store::cached;
  std::int64_t next_token_ = 0;
  std::vector<Peer> peers_;
};

}  // namespace shunt
