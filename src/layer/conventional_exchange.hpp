// The conventional shuffle: permute the top-k copies into the order of their destinations, all-to-all, permute into
// expert-major order; and backwards, ending in a weighted sum. The all-to-all is exchangeable.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/store.hpp"
#include "layer/aligned_buffer.hpp"
#include "layer/all_to_all.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/routing.hpp"
#include "shunt/tensor.hpp"
#include "shunt/topology.hpp"

namespace shunt {

/// Bytes of rows that all ranks together send in one dispatch.
struct SentBytes {
  std::uint64_t between_ranks = 0;
  std::uint64_t between_nodes = 0;
};

struct ExchangeOptions {
  std::int64_t hidden = 0;
  DType dtype = bf16;           ///< of rows, expert outputs and results: f32, bf16 or f16
  Store store = Store::cached;  ///< how the permutes write
};

/// Every call is collective and blocking.
class ConventionalExchange {
 public:
  /// all_to_all must carry rows of the same hidden and dtype. topology: that of the world that it connects.
  ConventionalExchange(RankId rank, const Topology& topology, std::shared_ptr<AllToAll> all_to_all,
                       const ExchangeOptions& options)
      : rank_(rank), topology_(topology), all_to_all_(std::move(all_to_all)), options_(options) {}

  [[nodiscard]] const AllToAll& all_to_all() const { return *all_to_all_; }

  /// Computes everything that depends only on the routing. Copies of experts are those of every plan (CopyChoice). The
  /// routing is read during the call only.
  void plan(const Routing& routing, const ExpertMap& map);
  /// x: [tokens, hidden] in the dtype. Returns this rank's rows in expert-major order, within an expert by source rank
  /// and token; valid until the next call.
  ConstTensor dispatch(const ConstTensor& x);
  /// The buffer for the experts' outputs; valid until the next plan().
  Tensor expert_out();
  /// Sums the rows in expert_out(), in the order of the routing; valid until the next call.
  ConstTensor combine();

  /// After plan(), [local experts]: first row and number of rows of each expert.
  [[nodiscard]] std::span<const std::int32_t> expert_offsets() const { return expert_offsets_; }
  [[nodiscard]] std::span<const std::int32_t> expert_counts() const { return expert_counts_; }
  /// After plan().
  [[nodiscard]] SentBytes sent_bytes(const ExpertMap& map) const;

 private:
  [[nodiscard]] std::size_t row_bytes() const {
    return static_cast<std::size_t>(options_.hidden) * size_of(options_.dtype);
  }
  void order_by_expert(const Routing& routing, const ExpertMap& map);
  void place_received(const ExpertMap& map);

  RankId rank_;
  Topology topology_;
  std::shared_ptr<AllToAll> all_to_all_;
  ExchangeOptions options_;

  std::size_t topk_ = 1;
  std::vector<float> weights_;               // [tokens, topk]
  std::vector<std::int32_t> counts_;         // rows this rank sends to each physical expert
  std::vector<std::int32_t> all_counts_;     // [ranks, physical experts]
  std::vector<std::int32_t> sent_token_;     // by position in the send buffer
  std::vector<std::int32_t> sent_position_;  // [tokens, topk]: position of each copy in the send buffer; −1: dropped
  std::vector<std::int32_t> received_slot_;  // by position in the receive buffer
  std::vector<std::int32_t> expert_offsets_;
  std::vector<std::int32_t> expert_counts_;
  AllToAll::Buffers buffers_{};
  AlignedBuffer rows_;
  AlignedBuffer expert_out_;
  AlignedBuffer result_;
};

}  // namespace shunt
