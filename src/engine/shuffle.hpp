// What the four data operations have in common.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "engine/fabric.hpp"
#include "engine/operation.hpp"
#include "kernels/store.hpp"
#include "plan/plan_data.hpp"

namespace shunt {

/// One flow of a plan under way, there or back: a segment per token, in their order.
template <class Flow>
struct FlowCursor {
  const Flow* flow;
  SliceChannel* channel;
  std::size_t next = 0;  // token

  [[nodiscard]] bool is_over() const { return next == flow->tokens.size(); }

  /// Sends what there is room for: fill(flow, i, segment) writes the segment of the flow's i-th token, which has
  /// bytes_of(flow, i). True if something moved.
  template <class BytesOf, class Fill>
  bool send(const BytesOf& bytes_of, const Fill& fill) {
    bool moved = false;
    for (; !is_over(); ++next, moved = true) {
      std::byte* const segment = channel->open_segment(bytes_of(*flow, next));
      if (!segment) break;
      fill(*flow, next, segment);
      channel->commit();
    }
    return moved;
  }
  /// Takes what has arrived: take(flow, i, segment). True if something moved.
  template <class BytesOf, class Take>
  bool receive(const BytesOf& bytes_of, const Take& take) {
    bool moved = false;
    for (; !is_over(); ++next, moved = true) {
      const std::byte* const segment = channel->front(bytes_of(*flow, next));
      if (!segment) break;
      take(*flow, next, segment);
      channel->pop();
    }
    return moved;
  }
};

/// The flows of one operation that carry rows one way only, and nothing else.
template <class SentFlow, class ReceivedFlow>
struct FarFlows {
  std::vector<FlowCursor<SentFlow>> sent;
  std::vector<FlowCursor<ReceivedFlow>> received;

  template <class BytesOf, class Fill>
  bool send(const BytesOf& bytes_of, const Fill& fill) {
    bool moved = false;
    for (auto& each : sent) {
      moved |= each.send(bytes_of, fill);
      if (each.is_over() && each.channel->is_sending()) moved |= each.channel->finish_sending();
    }
    return moved;
  }
  template <class BytesOf, class Take>
  bool receive(const BytesOf& bytes_of, const Take& take) {
    bool moved = false;
    for (auto& each : received) moved |= each.receive(bytes_of, take);
    return moved;
  }
  /// True once all is on its way and all has been read to its end.
  bool finish() {
    for (auto& each : received)
      if (!each.is_over() || !each.channel->finish_receiving()) return false;
    return std::ranges::none_of(sent, [](const auto& each) { return each.channel->is_sending(); });
  }
};

/// An operation over a plan. Among near ranks the work is done by the rank that owns the tokens: it writes rows
/// straight into their slots in the receivers' memory, or reads them from there. A far node gets one row per token,
/// through one of its ranks, the forwarder, which does there what the owner of the token can't do.
class Shuffle : public Operation {
 public:
  struct Context {
    Transport& transport;
    std::shared_ptr<const Group> group;
    std::uint64_t engine;
    std::chrono::milliseconds deadline;
    std::shared_ptr<const PlanData> plan;
    std::string_view engine_name = {};
  };

  [[nodiscard]] std::vector<RankId> far_partners() const override;

  Shuffle(const Context& context, const Announcement& announcement)
      : Operation(context.group, context.engine, announcement, context.deadline, context.engine_name),
        transport_(context.transport),
        plan_(context.plan) {}

 protected:
  [[nodiscard]] const PlanData& plan() const { return *plan_; }

  /// Throws PeerError unless what a near peer announced has the size that the plan demands.
  void check_announced(RankId rank, const Announcement& peer, std::size_t expected_bytes) const;
  /// The block that a near peer announced, checked; nullptr for a far peer.
  [[nodiscard]] std::byte* announced_block(RankId rank, const Announcement& peer, std::size_t expected_bytes) const;
  [[nodiscard]] std::byte* peer_block(RankId rank, std::uint64_t offset, std::size_t bytes) const;

  [[nodiscard]] bool has_flows() const { return !plan_->out_flows.empty() || !plan_->in_flows.empty(); }
  /// To be called in begin(): the plan's flows that have tokens, at their beginning.
  [[nodiscard]] std::vector<FlowCursor<OutFlow>> out_flows() const;
  [[nodiscard]] std::vector<FlowCursor<InFlow>> in_flows() const;
  template <class SentFlow, class ReceivedFlow>
  [[nodiscard]] static FarFlows<SentFlow, ReceivedFlow> start(std::vector<FlowCursor<SentFlow>> sent,
                                                              std::vector<FlowCursor<ReceivedFlow>> received) {
    for (const auto& each : sent) each.channel->begin_sending();
    for (const auto& each : received) each.channel->begin_receiving();
    return {std::move(sent), std::move(received)};
  }

  /// The end of the run of tokens from `begin` to do at once: all, or so few that the network does not wait long.
  [[nodiscard]] std::int64_t end_of_chunk(std::int64_t begin, std::size_t bytes_per_token) const;

  /// How to write this rank's `bytes`. All ranks of a host write at about the same time and share its cache.
  [[nodiscard]] Store store_for(std::size_t bytes) const { return choose_store(bytes * group().num_near()); }

 private:
  Transport& transport_;
  std::shared_ptr<const PlanData> plan_;
};

/// Calls visit(begin, end) for each run of alignment padding in this rank's `expert_major` rows.
template <class Visit>
void for_each_padding(const PlanData& plan, const Visit& visit) {
  if (plan.options.layout != Layout::expert_major || plan.options.alignment == 1) return;
  for (std::size_t expert = 0; expert < plan.expert_counts.size(); ++expert) {
    const std::int64_t begin = plan.expert_offsets[expert] + plan.expert_counts[expert];
    const std::int64_t end = plan.expert_offsets[expert + 1];
    if (begin < end) visit(begin, end);
  }
}

/// Zeroes that padding.
void zero_padding(const PlanData& plan, std::byte* rows, std::size_t row_bytes);

}  // namespace shunt
