#include "engine/dispatch.hpp"

#include <algorithm>
#include <cstring>

#include "core/fail.hpp"
#include "kernels/fp8.hpp"

namespace shunt {

RowBlock Dispatch::block_of(const PlanData& plan, const RowFormat& format, RankId rank) {
  const bool padded = plan.options.layout == Layout::padded;
  return {format, plan.rows_of_rank[rank.index()],
          padded ? plan.rows_of_rank[rank.index()] / plan.options.max_tokens : 0};
}

void Dispatch::begin(std::span<const Announcement> peers) {
  std::vector<Receiver> receivers;
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    const RowBlock block = block_of(plan(), in_.format, RankId(rank));
    receivers.push_back({block, announced_block(RankId(rank), peers[rank], block.bytes())});
  }
  scatter_.emplace(in_.format, std::move(receivers), store_for(plan().targets.size() * in_.format.row_bytes));
  if (!has_flows()) return;
  far_.sending.start(plan().out_flows, streams());
  far_.receiving.start(plan().in_flows, streams());
}

Work Dispatch::work() {
  bool moved = send_far();
  const std::int64_t end = end_of_chunk(next_token_, in_.format.row_bytes * static_cast<std::size_t>(plan().topk));
  for (; next_token_ < end; ++next_token_, moved = true) send_near(next_token_);
  moved |= forward();
  if (next_token_ < plan().num_tokens || !far_.finish()) return moved ? Work::moved : Work::idle;
  write_source_counts();
  fill_padding();
  // Partner: the release of the `done` signal that follows.
  flush_streaming();
  return Work::finished;
}

Dispatch::Row Dispatch::row_of(std::int64_t token) {
  const std::byte* row = in_.x.row(token);
  if (in_.format.scales_per_row == 0) return {row, nullptr};
  if (in_.x.dtype == fp8_e4m3) return {row, in_.scales.row(token)};
  quantised_.resize(in_.format.row_bytes);
  quantised_scales_.resize(in_.format.scales_per_row);
  quantise_row(row, in_.x.dtype, static_cast<std::size_t>(in_.x.cols), quantised_.data(), quantised_scales_.data());
  return {reinterpret_cast<const std::byte*>(quantised_.data()),
          reinterpret_cast<const std::byte*>(quantised_scales_.data())};
}

void Dispatch::send_near(std::int64_t token) {
  const auto targets = plan().targets_of(token);
  if (targets.empty()) return;
  const Row row = row_of(token);
  scatter_->write(row.elements, row.scales, {group().self.value, static_cast<std::int32_t>(token)}, targets);
}

// A segment is a row and its scales; what else a forwarder needs it has had since the plan was made.
bool Dispatch::send_far() {
  const std::size_t scale_bytes = in_.format.scales_per_row * sizeof(float);
  return far_.sending.pump([&](const OutFlow&, std::size_t) { return in_.format.row_bytes + scale_bytes; },
                           [&](const OutFlow& flow, std::size_t i, std::byte* segment) {
                             const Row row = row_of(flow.tokens[i]);
                             std::memcpy(segment, row.elements, in_.format.row_bytes);
                             if (scale_bytes > 0) std::memcpy(segment + in_.format.row_bytes, row.scales, scale_bytes);
                           });
}

bool Dispatch::forward() {
  const std::size_t bytes = in_.format.row_bytes + in_.format.scales_per_row * sizeof(float);
  return far_.receiving.pump([&](const InFlow&, std::size_t) { return bytes; },
                             [&](const InFlow& flow, std::size_t i, const std::byte* segment) {
                               scatter_->write(segment, segment + in_.format.row_bytes,
                                               {flow.source.value, static_cast<std::int32_t>(flow.tokens[i])},
                                               flow.targets_of(i));
                             });
}

// `padded` exchanges no counts at plan time, so they travel here: [local expert, source].
void Dispatch::write_source_counts() const {
  if (plan().options.layout != Layout::padded) return;
  const auto num_ranks = static_cast<std::size_t>(plan().topology.num_ranks());
  const auto write = [&](RankId receiver, RankId source, const std::int32_t* counts) {
    const Receiver& to = scatter_->receiver(receiver);
    const auto rows_per_expert = static_cast<std::int64_t>(num_ranks) * plan().options.max_tokens;
    const auto num_experts = static_cast<std::size_t>(plan().rows_of_rank[receiver.index()] / rows_per_expert);
    for (std::size_t expert = 0; expert < num_experts && to.base; ++expert)
      to.block.source_counts(to.base)[expert * num_ranks + source.index()] = counts[expert];
    return num_experts;
  };
  const std::int32_t* own = plan().padded_send_counts.data();
  for (std::size_t rank = 0; rank < num_ranks; ++rank) own += write(RankId(rank), plan().self, own);
  for (const InFlow& flow : plan().in_flows) {
    if (flow.source_counts.empty()) continue;
    const std::int32_t* theirs = flow.source_counts.data();
    for (const RankId rank : plan().topology.ranks(plan().topology.node(plan().self)))
      theirs += write(rank, flow.source, theirs);
  }
}

void Dispatch::fill_padding() const {
  const Receiver& own = scatter_->receiver(plan().self);
  zero_padding(plan(), own.base, in_.format.row_bytes);
  for_each_padding(plan(), [&](std::int64_t begin, std::int64_t end) {
    for (auto slot = static_cast<std::size_t>(begin); slot < static_cast<std::size_t>(end); ++slot) {
      std::fill_n(own.block.scales(own.base, slot), in_.format.scales_per_row, 0.0f);
      if (in_.format.origins) own.block.origins(own.base)[slot] = {};
      if (in_.format.weights) own.block.weights(own.base)[slot] = 0.0f;
    }
  });
}

bool Dispatch::finish() {
  if (in_.copy_into.data && in_.copy_into.bytes() > 0)
    std::memcpy(in_.copy_into.data, in_.output.data, in_.copy_into.bytes());
  return true;
}

}  // namespace shunt
