#include "engine/combine_backward.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/dot.hpp"
#include "kernels/scale.hpp"

namespace shunt {

void CombineBackward::begin(std::span<const Announcement> peers) {
  row_bytes_ = hidden() * size_of(in_.expert_dtype);
  append_rows(gradients_of_, peers, &Announcement::offset, row_bytes_);
  if (in_.has_weights) append_rows(expert_out_of_, peers, &Announcement::second_offset, row_bytes_);
  store_ = store_for(plan().targets.size() * row_bytes_);
  for (const auto& each : out_flows()) peer(each.channel).out = each;
  for (const auto& each : in_flows()) peer(each.channel).in = each;
}

CombineBackward::Peer& CombineBackward::peer(SliceChannel* channel) {
  const auto known = std::ranges::find(peers_, channel, &Peer::channel);
  if (known != peers_.end()) return *known;
  channel->begin_sending();
  channel->begin_receiving();
  return peers_.emplace_back(Peer{channel});
}

Work CombineBackward::work() {
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

float CombineBackward::write_target(const std::byte* gradient, const Target& target) {
  const std::size_t offset = target.slot.index() * row_bytes_;
  scale_row(gradient, in_.grad_out.dtype, target.weight, hidden(), gradients_of_[target.rank.index()] + offset,
            in_.expert_dtype, store_);
  if (!in_.has_weights) return 0;
  return dot(gradient, in_.grad_out.dtype, expert_out_of_[target.rank.index()] + offset, in_.expert_dtype, hidden());
}

void CombineBackward::send_near(std::int64_t token) {
  for (const Target& target : plan().targets_of(token)) {
    if (!gradients_of_[target.rank.index()]) continue;
    const float weight_gradient = write_target(in_.grad_out.row(token), target);
    if (in_.has_weights) in_.grad_weights[token * plan().topk + target.choice] = weight_gradient;
  }
}

bool CombineBackward::send(Peer& to) {
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

bool CombineBackward::receive(Peer& from) {
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

template <class Visit>
void CombineBackward::for_answered(const OutFlow& flow, const Visit& visit) const {
  const NodeId node = plan().topology.node(flow.forwarder);
  for (const std::uint32_t token : flow.tokens)
    for (const Target& target : plan().targets_of(token))
      if (plan().topology.node(target.rank) == node) visit(in_.grad_weights[token * plan().topk + target.choice]);
}

}  // namespace shunt
