// Combine, and the gradient of dispatch: expert outputs back to their tokens.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/fail.hpp"
#include "engine/shuffle.hpp"
#include "kernels/reduce.hpp"
#include "shunt/engine.hpp"
#include "shunt/routing.hpp"
#include "shunt/tensor.hpp"

namespace shunt {

class Combine final : public Shuffle {
 public:
  struct Inputs {
    std::shared_ptr<const void> rows_owner;  ///< keeps this rank's announced rows alive
    std::int64_t hidden;
    ReduceFormat format;
    Reduction reduction;
    bool weighted;  ///< false for the gradient of dispatch
    Tensor out;
  };

  Combine(const Context& context, const Announcement& announcement, Inputs inputs)
      : Shuffle(context, announcement), in_(std::move(inputs)) {}

  void begin(std::span<const Announcement> peers) override {
    row_bytes_ = hidden() * size_of(in_.format.terms);
    append_rows(rows_of_, peers, &Announcement::offset, row_bytes_);
    store_ = store_for(in_.out.bytes());
    far_ = start(in_flows(), out_flows());
  }

  // Tokens are summed in order, and far parts travel in the same order: the parts of the next token are at the front of
  // their channels, so none waits for another token.
  Work work() override {
    bool moved = forward();
    const std::int64_t end = end_of_chunk(next_token_, row_bytes_ * static_cast<std::size_t>(plan().topk));
    for (; next_token_ < end && sum_token(next_token_); ++next_token_) moved = true;
    if (next_token_ < plan().num_tokens || !far_.finish()) return progress_of(moved);
    // The result is read by other threads of this rank; partner: the release of the operation's state.
    flush_streaming();
    return Work::finished;
  }

 private:
  /// What a far node sends for one token: the sum of its rows in the wire dtype; for `flat`, the rows themselves.
  struct FarPart {
    NodeId node;
    FlowCursor<OutFlow>* flow;
    const std::byte* rows;
  };

  [[nodiscard]] const std::byte* row(const Target& target) const {
    return rows_of_[target.rank.index()] + target.slot.index() * row_bytes_;
  }
  [[nodiscard]] float weight(const Target& target) const { return in_.weighted ? target.weight : 1.0f; }
  [[nodiscard]] std::size_t hidden() const { return static_cast<std::size_t>(in_.hidden); }
  [[nodiscard]] bool is_flat() const { return in_.reduction == Reduction::flat; }
  [[nodiscard]] std::size_t part_bytes(std::size_t num_targets) const {
    return is_flat() ? num_targets * row_bytes_ : hidden() * size_of(in_.format.wire);
  }

  /// As forwarder: sums the rows of near ranks for the tokens of far sources.
  bool forward() {
    return far_.send(
        [&](const InFlow& flow, std::size_t i) { return part_bytes(flow.targets_of(i).size()); },
        [&](const InFlow& flow, std::size_t i, std::byte* segment) { forward_token(flow.targets_of(i), segment); });
  }

  void forward_token(std::span<const Target> targets, std::byte* segment) const {
    if (is_flat()) {
      for (std::size_t i = 0; i < targets.size(); ++i)
        std::memcpy(segment + i * row_bytes_, row(targets[i]), row_bytes_);
      return;
    }
    std::array<Term, Routing::kMaxTopK> terms;
    for (std::size_t i = 0; i < targets.size(); ++i)
      terms[i] = {row(targets[i]), weight(targets[i]), targets[i].closes};
    const ReduceFormat to_wire{in_.format.terms, in_.format.wire, in_.format.wire};
    reduce_row(std::span(terms.data(), targets.size()), hidden(), to_wire, segment, Store::cached);
  }

  [[nodiscard]] FarPart* far_part(const Target& target) {
    const NodeId node = plan().topology.node(target.rank);
    const auto found = std::ranges::find(far_parts_, node, &FarPart::node);
    return found == far_parts_.end() ? nullptr : &*found;
  }

  /// False while a far part has not arrived.
  bool find_far_parts(std::int64_t token) {
    far_parts_.clear();
    if (far_.received.empty()) return true;
    const auto targets = plan().targets_of(token);
    for (const Target& target : targets) {
      if (plan().is_near(target.rank) || far_part(target)) continue;
      const NodeId node = plan().topology.node(target.rank);
      const auto num_targets = static_cast<std::size_t>(std::count_if(
          targets.begin(), targets.end(), [&](const Target& t) { return plan().topology.node(t.rank) == node; }));
      const auto flow = std::ranges::find_if(far_.received, [&](const FlowCursor<OutFlow>& each) {
        return plan().topology.node(each.flow->forwarder) == node && !each.is_over() &&
               each.flow->tokens[each.next] == token;
      });
      SHUNT_CHECK(flow != far_.received.end());
      const std::byte* rows = flow->channel->front(part_bytes(num_targets));
      if (!rows) return false;
      far_parts_.push_back({node, &*flow, rows});
    }
    return true;
  }

  bool sum_token(std::int64_t token) {
    if (!find_far_parts(token)) return false;
    const auto targets = plan().targets_of(token);
    if (!far_parts_.empty() && in_.format.wire != in_.format.terms && !is_flat())
      sum_in_f32(token);
    else
      reduce_row(terms_of(targets, 0, targets.size()), hidden(), in_.format, in_.out.row(token), store_);
    for (const FarPart& part : far_parts_) {
      part.flow->channel->pop();
      ++part.flow->next;
    }
    return true;
  }

  /// The terms of targets [begin, end) of a token; far parts are terms like near rows.
  std::span<const Term> terms_of(std::span<const Target> targets, std::size_t begin, std::size_t end) {
    std::size_t count = 0;
    for (std::size_t i = begin; i < end; ++i) {
      FarPart* const part = far_parts_.empty() ? nullptr : far_part(targets[i]);
      if (!part) {
        terms_[count++] = {row(targets[i]), weight(targets[i]), targets[i].closes};
      } else if (is_flat()) {
        terms_[count++] = {std::exchange(part->rows, part->rows + row_bytes_), weight(targets[i]), targets[i].closes};
      } else if (targets[i].closes == Closes::remote_node) {
        terms_[count++] = {part->rows, 1.0f, Closes::remote_node};
      }
    }
    return std::span(terms_.data(), count);
  }

  // Far parts have another dtype than near rows, so each node is widened first; that is exact.
  void sum_in_f32(std::int64_t token) {
    const auto targets = plan().targets_of(token);
    const ReduceFormat near_to_f32{in_.format.terms, in_.format.wire, f32};
    const ReduceFormat far_to_f32{in_.format.wire, in_.format.wire, f32};
    std::size_t num_nodes = 0;
    node_sums_.resize(targets.size() * hidden());
    const auto sum_of = [&](std::size_t node) { return reinterpret_cast<std::byte*>(&node_sums_[node * hidden()]); };
    for (std::size_t begin = 0, end = 0; begin < targets.size(); begin = end) {
      end = begin + 1;
      while (targets[end - 1].closes != Closes::node && targets[end - 1].closes != Closes::remote_node) ++end;
      reduce_row(terms_of(targets, begin, end), hidden(), far_part(targets[begin]) ? far_to_f32 : near_to_f32,
                 sum_of(num_nodes++), Store::cached);
    }
    for (std::size_t node = 0; node < num_nodes; ++node) terms_[node] = {sum_of(node), 1.0f, Closes::node};
    reduce_row(std::span(terms_.data(), num_nodes), hidden(), {f32, f32, in_.format.result}, in_.out.row(token),
               store_);
  }

  Inputs in_;
  std::size_t row_bytes_ = 0;
  std::vector<std::byte*> rows_of_;  // by rank; nullptr for far ones
  Store store_ = Store::cached;
  std::int64_t next_token_ = 0;
  FarFlows<InFlow, OutFlow> far_;
  std::vector<FarPart> far_parts_;  // of the current token
  std::array<Term, Routing::kMaxTopK> terms_;
  std::vector<float> node_sums_;  // [nodes of the token, hidden]
};

}  // namespace shunt
