// What the four operations on rows have in common.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "engine/operation.hpp"
#include "engine/world_impl.hpp"
#include "kernels/store.hpp"
#include "plan/plan_data.hpp"

namespace shunt {

/// Progress of one flow of a plan in either direction: a segment per token, in order.
template <class Flow>
struct FlowCursor {
  const Flow* flow;
  SliceChannel* channel;
  std::size_t next = 0;  // token

  [[nodiscard]] bool is_over() const { return next == flow->tokens.size(); }

  /// Sends as many segments as fit: fill(flow, i, segment) writes the segment of the flow's i-th token, of
  /// bytes_of(flow, i) bytes. True if any was sent.
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
  /// Calls take(flow, i, segment) for the segments that have arrived. True if there was any.
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

/// The flows of an operation that carries rows in one direction.
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
  /// True once everything was sent and everything was received.
  bool finish() {
    for (auto& each : received)
      if (!each.is_over() || !each.channel->finish_receiving()) return false;
    return std::ranges::none_of(sent, [](const auto& each) { return each.channel->is_sending(); });
  }
};

/// An operation over a plan. Among near ranks, the rank that owns the tokens does the work: it writes rows straight
/// into their slots in the receivers' memory, or reads them there. To a far node travels one row per token, to one of
/// its ranks, the forwarder, which does the same work there on behalf of the owner.
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

  /// A near peer's memory at an offset that it announced; throws PeerError if there is none.
  [[nodiscard]] virtual std::byte* peer_pointer(RankId rank, std::uint64_t offset, std::size_t bytes) const;
  /// The block that a near peer announced; null if it is empty or the peer is far. Throws PeerError unless the first
  /// one has the size that follows from the plan.
  [[nodiscard]] std::byte* announced_block(RankId rank, const Announcement& peer, std::size_t expected_bytes,
                                           std::uint64_t Announcement::*offset = &Announcement::offset) const;
  /// Appends each rank's announced rows.
  void append_rows(std::vector<std::byte*>& rows, std::span<const Announcement> peers,
                   std::uint64_t Announcement::*offset, std::size_t row_bytes) const;

  [[nodiscard]] bool has_flows() const { return !plan_->out_flows.empty() || !plan_->in_flows.empty(); }
  /// Cursors at the beginning of the plan's flows that have tokens. Call in begin().
  [[nodiscard]] std::vector<FlowCursor<OutFlow>> out_flows() const;
  [[nodiscard]] std::vector<FlowCursor<InFlow>> in_flows() const;
  template <class SentFlow, class ReceivedFlow>
  [[nodiscard]] static FarFlows<SentFlow, ReceivedFlow> start(std::vector<FlowCursor<SentFlow>> sent,
                                                              std::vector<FlowCursor<ReceivedFlow>> received) {
    for (const auto& each : sent) each.channel->begin_sending();
    for (const auto& each : received) each.channel->begin_receiving();
    return {std::move(sent), std::move(received)};
  }

  /// End of the next run of tokens from `begin`: all tokens, or few enough to keep the network busy in between.
  [[nodiscard]] std::int64_t end_of_chunk(std::int64_t begin, std::size_t bytes_per_token) const;

  /// How to store this rank's `bytes`. The ranks of a machine share its cache and write at about the same time.
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

/// Zeroes the alignment padding of this rank's rows.
void zero_padding(const PlanData& plan, std::byte* rows, std::size_t row_bytes);

}  // namespace shunt
