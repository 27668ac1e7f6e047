// Dispatch: token rows to the slots of their experts.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "core/fail.hpp"
#include "engine/row_block.hpp"
#include "engine/shuffle.hpp"
#include "kernels/copy.hpp"
#include "kernels/fp8.hpp"
#include "shunt/routing.hpp"
#include "shunt/tensor.hpp"

namespace shunt {

class Dispatch final : public Shuffle {
 public:
  struct Inputs {
    ConstTensor x;
    ConstTensor scales;  ///< for fp8 x; empty when x is quantised here
    RowFormat format;
    Block output;  ///< this rank's block; peers write into it
    // The caller's outputs for rows and scales, where they are not in the block; else empty.
    Tensor copy_into;
    Tensor copy_scales_into;
  };

  Dispatch(const Context& context, const Announcement& announcement, Inputs inputs)
      : Shuffle(context, announcement), in_(std::move(inputs)) {}

  /// The block of a rank's output.
  static RowBlock block_of(const PlanData& plan, const RowFormat& format, RankId rank) {
    const bool padded = plan.options.layout == Layout::padded;
    return {format, plan.rows_of_rank[rank.index()],
            padded ? plan.rows_of_rank[rank.index()] / plan.options.max_tokens : 0};
  }

  void begin(std::span<const Announcement> peers) override {
    for (std::size_t rank = 0; rank < peers.size(); ++rank) {
      const RowBlock block = block_of(plan(), in_.format, RankId(rank));
      receivers_.push_back({block, announced_block(RankId(rank), peers[rank], block.bytes())});
    }
    store_ = store_for(plan().targets.size() * in_.format.row_bytes);
    far_ = start(out_flows(), in_flows());
  }

  Work work() override {
    bool moved = send_far();
    const std::int64_t end = end_of_chunk(next_token_, in_.format.row_bytes * static_cast<std::size_t>(plan().topk));
    for (; next_token_ < end; ++next_token_, moved = true) send_near(next_token_);
    moved |= forward();
    if (next_token_ < plan().num_tokens || !far_.finish()) return progress_of(moved);
    write_source_counts();
    fill_padding();
    // Partner: the release of the `done` signal that follows.
    flush_streaming();
    return Work::finished;
  }

  bool finish() override {
    if (plan().options.packed) pack();
    const Tensor& rows = in_.copy_into;
    const Tensor& scales = in_.copy_scales_into;
    const RowBlock& own = receivers_[plan().self.index()].block;
    if (rows.data) copy_rows(borrow(in_.output.data, rows.dtype, rows.rows, rows.cols), rows);
    if (scales.data) copy_rows(borrow(own.scales(in_.output.data, 0), scales.dtype, scales.rows, scales.cols), scales);
    return true;
  }

 private:
  /// A token's row and scales as they travel; valid until the next call.
  struct Row {
    const std::byte* elements;
    const std::byte* scales;
  };

  Row row_of(std::int64_t token) {
    const std::byte* row = in_.x.row(token);
    if (in_.format.scales_per_row == 0) return {row, nullptr};
    if (in_.x.dtype == fp8_e4m3) return {row, in_.scales.row(token)};
    quantised_.resize(in_.format.row_bytes);
    quantised_scales_.resize(in_.format.scales_per_row);
    quantise_row(row, in_.x.dtype, static_cast<std::size_t>(in_.x.cols), quantised_.data(), quantised_scales_.data());
    return {reinterpret_cast<const std::byte*>(quantised_.data()),
            reinterpret_cast<const std::byte*>(quantised_scales_.data())};
  }

  /// Writes a row and its companions into its slots on near ranks. `scales` need not be aligned.
  void scatter(const Row& row, const RowOrigin& origin, std::span<const Target> targets) const {
    std::array<std::byte*, Routing::kMaxTopK> slots;
    std::size_t num_slots = 0;
    for (const Target& target : targets) {
      const Receiver& to = receivers_[target.rank.index()];
      if (!to.base) continue;
      const std::size_t slot = target.slot.index();
      slots[num_slots++] = to.block.row(to.base, slot);
      if (in_.format.scales_per_row > 0)
        std::memcpy(to.block.scales(to.base, slot), row.scales, in_.format.scales_per_row * sizeof(float));
      if (in_.format.origins) to.block.origins(to.base)[slot] = origin;
      if (in_.format.weights) to.block.weights(to.base)[slot] = target.weight;
    }
    if (num_slots > 0) copy_row(row.elements, in_.format.row_bytes, std::span(slots.data(), num_slots), store_);
  }

  void send_near(std::int64_t token) {
    const auto targets = plan().targets_of(token);
    if (!targets.empty()) scatter(row_of(token), {group().self.value, static_cast<std::int32_t>(token)}, targets);
  }

  // A segment holds a row and its scales; forwarders received the rest when the plan was made.
  bool send_far() {
    const std::size_t scale_bytes = in_.format.scales_per_row * sizeof(float);
    return far_.send([&](const OutFlow&, std::size_t) { return in_.format.row_bytes + scale_bytes; },
                     [&](const OutFlow& flow, std::size_t i, std::byte* segment) {
                       const Row row = row_of(flow.tokens[i]);
                       std::memcpy(segment, row.elements, in_.format.row_bytes);
                       if (scale_bytes > 0) std::memcpy(segment + in_.format.row_bytes, row.scales, scale_bytes);
                     });
  }

  bool forward() {
    const std::size_t bytes = in_.format.row_bytes + in_.format.scales_per_row * sizeof(float);
    return far_.receive([&](const InFlow&, std::size_t) { return bytes; },
                        [&](const InFlow& flow, std::size_t i, const std::byte* segment) {
                          scatter({segment, segment + in_.format.row_bytes},
                                  {flow.source.value, static_cast<std::int32_t>(flow.tokens[i])}, flow.targets_of(i));
                        });
  }

  // Plans of `padded` exchange no counts, so dispatch delivers them: [local expert, source].
  void write_source_counts() const {
    if (plan().options.layout != Layout::padded) return;
    const auto num_ranks = static_cast<std::size_t>(plan().topology.num_ranks());
    const auto write = [&](RankId receiver, RankId source, const std::int32_t* counts) {
      const Receiver& to = receivers_[receiver.index()];
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

  void fill_padding() const {
    const Receiver& own = receivers_[plan().self.index()];
    zero_padding(plan(), own.base, in_.format.row_bytes);
    for_each_padding(plan(), [&](std::int64_t begin, std::int64_t end) {
      for (auto slot = static_cast<std::size_t>(begin); slot < static_cast<std::size_t>(end); ++slot) {
        std::fill_n(own.block.scales(own.base, slot), in_.format.scales_per_row, 0.0f);
        if (in_.format.origins) own.block.origins(own.base)[slot] = {};
        if (in_.format.weights) own.block.weights(own.base)[slot] = 0.0f;
      }
    });
  }

  void pack() const {
    const PlanData& of = plan();
    const RowBlock& block = receivers_[of.self.index()].block;
    std::byte* const base = in_.output.data;
    const auto num_ranks = static_cast<std::size_t>(of.topology.num_ranks());
    const std::span counts(block.source_counts(base), static_cast<std::size_t>(of.num_local_experts) * num_ranks);
    for (std::size_t run = 0; run < counts.size(); ++run)
      if (counts[run] < 0 || counts[run] > of.options.max_tokens)
        fail_because_of(group().member(RankId(run % num_ranks)),
                        "rank {} sent {} rows for an expert of rank {}, max_tokens is {}", run % num_ranks, counts[run],
                        of.self, of.options.max_tokens);
    of.arrived_counts->set(counts);
    const auto runs = packed_runs(counts, of.topology.num_ranks(), of.options.max_tokens);
    pack_in_place(runs, base, in_.format.row_bytes);
    pack_in_place(runs, reinterpret_cast<std::byte*>(block.scales(base, 0)), in_.format.scales_per_row * sizeof(float));
    if (in_.format.origins) pack_in_place(runs, reinterpret_cast<std::byte*>(block.origins(base)), sizeof(RowOrigin));
    if (in_.format.weights) pack_in_place(runs, reinterpret_cast<std::byte*>(block.weights(base)), sizeof(float));
  }

  Inputs in_;
  /// A rank's block, as this rank addresses it.
  struct Receiver {
    RowBlock block;
    std::byte* base;  ///< nullptr for a far rank, which is reached through a forwarder
  };
  std::vector<Receiver> receivers_;  // by rank
  Store store_ = Store::cached;
  std::int64_t next_token_ = 0;
  FarFlows<OutFlow, InFlow> far_;
  std::vector<std::uint8_t> quantised_;  // one row
  std::vector<float> quantised_scales_;
};

}  // namespace shunt
