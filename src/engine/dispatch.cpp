#include "engine/dispatch.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/fail.hpp"
#include "kernels/copy.hpp"
#include "kernels/fp8.hpp"
#include "shunt/routing.hpp"

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
  const Store store = store_for(plan().targets.size() * in_.format.row_bytes);
  for (std::int64_t token = 0; token < plan().num_tokens; ++token) send_token(token, receivers, store);
  send_source_counts(receivers);
  fill_padding(receivers[group().self.index()]);
  // Partner: the release of the `done` signal that follows.
  flush_streaming();
}

void Dispatch::send_token(std::int64_t token, const std::vector<Receiver>& receivers, Store store) {
  const auto targets = plan().targets_of(token);
  if (targets.empty()) return;
  const std::byte* row = in_.x.row(token);
  if (in_.format.scales_per_row > 0 && in_.x.dtype != fp8_e4m3) {
    quantised_.resize(in_.format.row_bytes);
    quantised_scales_.resize(in_.format.scales_per_row);
    quantise_row(row, in_.x.dtype, static_cast<std::size_t>(in_.x.cols), quantised_.data(), quantised_scales_.data());
    row = reinterpret_cast<const std::byte*>(quantised_.data());
  }
  std::array<std::byte*, Routing::kMaxTopK> slots;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const Receiver& receiver = receivers[targets[i].rank.index()];
    slots[i] = receiver.block.row(receiver.base, targets[i].slot.index());
    send_companions(token, targets[i], receiver);
  }
  copy_row(row, in_.format.row_bytes, std::span(slots.data(), targets.size()), store);
}

void Dispatch::send_companions(std::int64_t token, const Target& target, const Receiver& receiver) const {
  const std::size_t slot = target.slot.index();
  if (const std::size_t count = in_.format.scales_per_row; count > 0) {
    const float* scales =
        in_.x.dtype == fp8_e4m3 ? reinterpret_cast<const float*>(in_.scales.row(token)) : quantised_scales_.data();
    std::copy_n(scales, count, receiver.block.scales(receiver.base, slot));
  }
  if (in_.format.origins)
    receiver.block.origins(receiver.base)[slot] = {group().self.value, static_cast<std::int32_t>(token)};
  if (in_.format.weights) receiver.block.weights(receiver.base)[slot] = target.weight;
}

// `padded` exchanges nothing at plan time, so the counts travel here: [local expert, source].
void Dispatch::send_source_counts(const std::vector<Receiver>& receivers) const {
  if (plan().options.layout != Layout::padded) return;
  std::size_t physical = 0;
  for (std::size_t rank = 0; rank < receivers.size(); ++rank) {
    const auto rows_per_expert = static_cast<std::int64_t>(receivers.size()) * plan().options.max_tokens;
    const auto num_experts = static_cast<std::size_t>(plan().rows_of_rank[rank] / rows_per_expert);
    for (std::size_t expert = 0; expert < num_experts; ++expert)
      receivers[rank].block.source_counts(receivers[rank].base)[expert * receivers.size() + group().self.index()] =
          plan().padded_send_counts[physical++];
  }
}

void Dispatch::fill_padding(const Receiver& own) const {
  zero_padding(plan(), own.base, in_.format.row_bytes);
  for_each_padding(plan(), [&](std::int64_t begin, std::int64_t end) {
    for (auto slot = static_cast<std::size_t>(begin); slot < static_cast<std::size_t>(end); ++slot) {
      std::fill_n(own.block.scales(own.base, slot), in_.format.scales_per_row, 0.0f);
      if (in_.format.origins) own.block.origins(own.base)[slot] = {};
      if (in_.format.weights) own.block.weights(own.base)[slot] = 0.0f;
    }
  });
}

void Dispatch::finish() {
  if (in_.copy_into.data && in_.copy_into.bytes() > 0)
    std::memcpy(in_.copy_into.data, in_.output.data, in_.copy_into.bytes());
}

}  // namespace shunt
