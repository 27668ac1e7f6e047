// What dispatch and the gradient of combine deliver.
#pragma once

#include <cstdint>
#include <span>

#include "shunt/plan.hpp"
#include "shunt/tensor.hpp"

namespace shunt {

/// Where a row came from; {−1, −1} for alignment padding.
struct RowOrigin {
  std::int32_t rank = -1;
  std::int32_t token = -1;
  bool operator==(const RowOrigin&) const = default;
};

/// Rows in the plan's layout with their companions, in one kind of memory. Spans are valid as long as both `data` and
/// `plan`, or copies of them, live.
struct Rows {
  /// [plan.num_rows(), hidden] in the engine's row dtype. Padding of `expert_major` is zero; unused rows of `padded`,
  /// and rows beyond what a bounded plan received, hold anything.
  Tensor data = {};
  /// fp8 rows only, else empty: [plan.num_rows(), scales_per_row(hidden)] f32; zero for padding.
  Tensor scales = {};
  /// Companions::ids: [num_rows].
  std::span<const RowOrigin> origins = {};
  /// Companions::weights, not in `token_unique`: [num_rows], 0 for padding.
  std::span<const float> weights = {};
  /// `padded` only: [local experts, ranks] rows that each source sent.
  std::span<const std::int32_t> source_counts = {};
  Plan plan = {};
};

/// What combine_backward delivers.
struct Gradients {
  /// [plan.num_rows(), hidden] in the expert dtype: weight × gradient of the token. Padding of `expert_major` is zero;
  /// unused rows hold anything, as those of Rows::data.
  Tensor rows = {};
  /// [tokens, topk] f32 gradient of each routing weight; 0 where dropped. Empty in `token_unique`.
  Tensor weights = {};
};

}  // namespace shunt
