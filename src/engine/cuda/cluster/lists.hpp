// A plan in host memory as lists that kernels read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/cuda/segment.hpp"
#include "plan/plan_data.hpp"

namespace shunt::device {

/// A list among others in one block.
template <class T>
struct ListIn {
  std::size_t offset = 0;
  std::int64_t size = 0;

  [[nodiscard]] const T* at(const std::byte* block) const { return reinterpret_cast<const T*>(block + offset); }
};

/// How sums are made where some of their parts come from far nodes.
enum class SumOrder : std::uint8_t {
  flat,   ///< far rows come one by one, in the expert dtype
  tree,   ///< a far node's part is one row, in the expert dtype too
  mixed,  ///< … in another dtype: every node's part is widened to f32 first
};

/// Lists count a flow's segments from its beginning, and a batch begins in the middle of it.
inline const std::byte* before(const std::byte* batch, std::int64_t num_segments, std::size_t segment_bytes) {
  return batch - static_cast<std::size_t>(num_segments) * segment_bytes;
}

/// Segments of a flow's tokens, one token's after another's.
struct SegmentsByToken {
  ListIn<Segment> all{};
  std::vector<std::int64_t> begins{};  ///< [tokens + 1]

  [[nodiscard]] std::int64_t begin_of(std::int64_t token) const { return begins[static_cast<std::size_t>(token)]; }
  /// Those of tokens [first, first + count).
  [[nodiscard]] std::int64_t num_of(std::int64_t first, std::int64_t count) const {
    return begin_of(first + count) - begin_of(first);
  }
};

/// Tables that kernels find rows by have an entry per rank of the world; parts from far nodes have the entries behind.
struct OutFlowLists {
  RankId peer;                    ///< the forwarder
  ListIn<std::int32_t> tokens{};  ///< whose rows it gets
  std::int64_t num_parts = 0;     ///< rows that come back: one per token or, for `flat`, one per target
  std::int32_t most_targets = 0;  ///< of a token, on the forwarder's node
  /// For every target, from its place in [tokens, most_targets] to its place in [this rank's tokens, topk].
  SegmentsByToken choices{};
};

struct InFlowLists {
  RankId peer;  ///< the source
  std::int64_t num_tokens = 0;
  std::int32_t most_targets = 0;  ///< of a token
  SegmentsByToken rows{};         ///< for every target, from the token's place in the flow
  ListIn<Term> terms{};           ///< [tokens, most_targets]; a term's choice is its place in the row
  ListIn<Term> flat_terms{};      ///< `flat`: [targets, 1]
};

/// Made once per plan. One block for the device, and where things lie in it.
struct PlanLists {
  PlanLists(const PlanData& plan, SumOrder order);

  [[nodiscard]] std::int64_t num_parts() const;

  std::vector<std::byte> block;
  ListIn<Segment> near;     ///< rows that stay on this node
  ListIn<Term> near_terms;  ///< [tokens, topk]: the same rows, by token
  /// [tokens, topk]: what a token's sum consists of. `mixed`: places among the widened parts, those of far nodes first.
  ListIn<Term> sums;
  ListIn<Term> near_parts;  ///< `mixed`: [near nodes' parts, topk]
  ListIn<Term> far_parts;   ///< `mixed`: [far nodes' parts, 1]
  std::vector<OutFlowLists> out_flows;
  std::vector<InFlowLists> in_flows;

  // For the owner of the rows.
  ListIn<std::int32_t> expert_offsets;  ///< [local experts + 1]
  ListIn<std::int32_t> expert_counts;   ///< [local experts]
  ListIn<std::int32_t> row_count;       ///< [1]
  ListIn<std::int32_t> unique_of_expert_row;
  ListIn<std::int32_t> expert_rows_of_unique;
  ListIn<std::int32_t> unique_experts;
  ListIn<float> unique_weights;

 private:
  template <class T>
  ListIn<T> add(std::span<const T> list);

  void add_near(const PlanData& plan);
  void add_out_flows(const PlanData& plan, SumOrder order);
  void add_in_flows(const PlanData& plan, SumOrder order);
  void add_plain_sums(const PlanData& plan, bool is_flat);
  void add_mixed_sums(const PlanData& plan);
  void add_receiver(const PlanData& plan);
};

}  // namespace shunt::device
