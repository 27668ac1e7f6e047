#include "engine/combine_backward.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/dot.hpp"
#include "kernels/scale.hpp"

namespace shunt {

void CombineBackward::begin(std::span<const Announcement> peers) {
  row_bytes_ = hidden() * size_of(in_.expert_dtype);
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    const std::size_t bytes = static_cast<std::size_t>(plan().rows_of_rank[rank]) * row_bytes_;
    gradients_of_.push_back(announced_block(RankId(rank), peers[rank], bytes));
    expert_out_of_.push_back(in_.has_weights ? peer_block(RankId(rank), peers[rank].second_offset, bytes) : nullptr);
  }
  store_ = store_for(plan().targets.size() * row_bytes_);
  for (const OutFlow& flow : plan().out_flows) peer(flow.forwarder).out = &flow;
  for (const InFlow& flow : plan().in_flows)
    if (!flow.tokens.empty()) peer(flow.source).in = &flow;
}

CombineBackward::Peer& CombineBackward::peer(RankId rank) {
  for (Peer& known : peers_)
    if (known.writer.peer() == rank) return known;
  return peers_.emplace_back(Peer{SegmentWriter(streams(), rank), SegmentReader(streams(), rank)});
}

Work CombineBackward::work() {
  bool moved = false;
  for (Peer& each : peers_) moved |= send(each);
  const std::int64_t end = end_of_chunk(next_token_, row_bytes_ * static_cast<std::size_t>(plan().topk));
  for (; next_token_ < end; ++next_token_, moved = true) send_near(next_token_);
  for (Peer& each : peers_) moved |= receive(each);
  const bool is_over = std::all_of(peers_.begin(), peers_.end(), [](const Peer& each) {
    return each.writer.is_finished() && each.reader.has_ended();
  });
  if (next_token_ < plan().num_tokens || !is_over) return moved ? Work::moved : Work::idle;
  zero_padding(plan(), in_.output.data, row_bytes_);
  // Partner: the release of the `done` signal that follows.
  flush_streaming();
  return Work::finished;
}

std::vector<RankId> CombineBackward::awaited_far() const {
  std::vector<RankId> awaited;
  for (const Peer& each : peers_)
    if (!each.writer.is_finished() || !each.reader.is_all_here()) awaited.push_back(each.writer.peer());
  return awaited;
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
  if (to.writer.is_finished()) return false;
  bool moved = false;
  const std::size_t row_bytes = hidden() * size_of(in_.grad_out.dtype);
  for (; to.out && to.num_sent < to.out->tokens.size(); ++to.num_sent, moved = true) {
    std::byte* const segment = to.writer.open(row_bytes);
    if (!segment) return moved;
    std::memcpy(segment, in_.grad_out.row(to.out->tokens[to.num_sent]), row_bytes);
    to.writer.commit();
  }
  if (to.in && to.num_received < to.in->tokens.size()) {
    // The peer waits for these rows as we wait for its rows.
    to.writer.flush();
    return moved;
  }
  if (const std::size_t bytes = to.weight_gradients.size() * sizeof(float); bytes > 0 && !to.has_answered) {
    std::byte* const segment = to.writer.open(bytes);
    if (!segment) return moved;
    std::memcpy(segment, to.weight_gradients.data(), bytes);
    to.writer.commit();
    to.has_answered = true;
  }
  return to.writer.finish() || moved;
}

bool CombineBackward::receive(Peer& from) {
  if (from.reader.has_ended()) return false;
  bool moved = false;
  const std::size_t row_bytes = hidden() * size_of(in_.grad_out.dtype);
  for (; from.in && from.num_received < from.in->tokens.size(); ++from.num_received, moved = true) {
    const std::byte* const gradient = from.reader.front(row_bytes);
    if (!gradient) return moved;
    for (const Target& target : from.in->targets_of(from.num_received)) {
      const float weight_gradient = write_target(gradient, target);
      if (in_.has_weights) from.weight_gradients.push_back(weight_gradient);
    }
    from.reader.pop();
  }
  if (from.out && in_.has_weights && !from.is_answered) {
    const std::byte* const gradients = from.reader.front(answer_size(*from.out) * sizeof(float));
    if (!gradients) return moved;
    take_answer(from, gradients);
    from.reader.pop();
    from.is_answered = true;
  }
  return from.reader.finish() || moved;
}

std::size_t CombineBackward::answer_size(const OutFlow& flow) const {
  std::size_t size = 0;
  const NodeId node = plan().topology.node(flow.forwarder);
  for (const std::uint32_t token : flow.tokens)
    for (const Target& target : plan().targets_of(token)) size += plan().topology.node(target.rank) == node;
  return size;
}

void CombineBackward::take_answer(const Peer& from, const std::byte* gradients) {
  const NodeId node = plan().topology.node(from.out->forwarder);
  for (const std::uint32_t token : from.out->tokens)
    for (const Target& target : plan().targets_of(token)) {
      if (plan().topology.node(target.rank) != node) continue;
      std::memcpy(&in_.grad_weights[token * plan().topk + target.choice], gradients, sizeof(float));
      gradients += sizeof(float);
    }
}

}  // namespace shunt
