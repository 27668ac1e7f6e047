// A host plan as lists for kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/cuda/segment.hpp"
#include "plan/plan_data.hpp"

namespace shunt::device {

/// One of several lists in a block.
template <class T>
struct ListIn {
  std::size_t offset = 0;
  std::int64_t size = 0;

  [[nodiscard]] const T* at(const std::byte* block) const { return reinterpret_cast<const T*>(block + offset); }
};

/// How sums with parts from far nodes are computed.
enum class SumOrder : std::uint8_t {
  flat,   ///< far rows arrive one by one, in the expert dtype
  tree,   ///< a far node's part is one row, also in the expert dtype
  mixed,  ///< a far node's part is one row in another dtype: every node's part is widened to f32 first
};

/// The address of a flow's segment 0 if `batch` starts at segment num_segments: lists count segments from the flow's
/// beginning.
inline const std::byte* before(const std::byte* batch, std::int64_t num_segments, std::size_t segment_bytes) {
  return batch - static_cast<std::size_t>(num_segments) * segment_bytes;
}

/// Segments of a flow, token by token.
struct SegmentsByToken {
  ListIn<Segment> all{};
  std::vector<std::int64_t> begins{};  ///< [tokens + 1]

  [[nodiscard]] std::int64_t begin_of(std::int64_t token) const { return begins[static_cast<std::size_t>(token)]; }
  /// Number of segments of tokens [first, first + count).
  [[nodiscard]] std::int64_t num_of(std::int64_t first, std::int64_t count) const {
    return begin_of(first + count) - begin_of(first);
  }
};

/// In the tables of row addresses, entries of far nodes' parts follow those of the world's ranks.
struct OutFlowLists {
  RankId peer;                    ///< the forwarder
  ListIn<std::int32_t> tokens{};  ///< the tokens whose rows it receives
  std::int64_t num_parts = 0;     ///< rows that combine receives: one per token or, for `flat`, one per target
  std::int32_t most_targets = 0;  ///< per token, on the forwarder's node
  /// For each target, a copy from its place in [flow's tokens, most_targets] to its place in [tokens, topk].
  SegmentsByToken choices{};
};

struct InFlowLists {
  RankId peer;  ///< the source
  std::int64_t num_tokens = 0;
  std::int32_t most_targets = 0;  ///< per token
  SegmentsByToken rows{};         ///< for each target, a copy from the token's place in the flow
  ListIn<Term> terms{};           ///< [tokens, most_targets]; a term's choice is its place in the row
  ListIn<Term> flat_terms{};      ///< `flat`: [targets, 1]
};

/// All lists of a plan, in one block that is uploaded once.
struct PlanLists {
  PlanLists(const PlanData& plan, SumOrder order);

  std::vector<std::byte> block;
  ListIn<Segment> near;     ///< rows for near ranks
  ListIn<Term> near_terms;  ///< [tokens, topk]: rows of near ranks, by token
  /// [tokens, topk]: the terms of each token's sum. `mixed`: indices of widened parts, those of far nodes first.
  ListIn<Term> sums;
  ListIn<Term> near_parts;  ///< `mixed`: [parts of near nodes, topk]
  ListIn<Term> far_parts;   ///< `mixed`: [parts of far nodes, 1]
  std::vector<OutFlowLists> out_flows;
  std::vector<InFlowLists> in_flows;

  // As in shunt::PlanArrays.
  ListIn<std::int32_t> expert_offsets;
  ListIn<std::int32_t> expert_counts;
  ListIn<std::int32_t> row_count;
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
