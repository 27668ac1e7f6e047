// Results of dispatch and of combine_backward.
#pragma once

#include <cstdint>
#include <span>

#include "shunt/plan.hpp"
#include "shunt/tensor.hpp"

namespace shunt {

/// The source of a row; {−1, −1} for alignment padding.
struct RowOrigin {
  std::int32_t rank = -1;
  std::int32_t token = -1;
  bool operator==(const RowOrigin&) const = default;
};

/// Rows in the plan's layout with their companions, in one kind of memory. The spans are valid as long as both `data`
/// and `plan`, or copies of them, exist.
struct Rows {
  /// [plan.num_rows(), hidden] in the engine's row dtype. Padding of `expert_major` is zero. Unused rows of `padded`,
  /// and rows beyond those that a bounded plan received, are unspecified.
  Tensor data = {};
  /// fp8 rows only, else empty: [plan.num_rows(), scales_per_row(hidden)] f32; zero for padding.
  Tensor scales = {};
  /// With Companions::ids, else empty: [num_rows].
  std::span<const RowOrigin> origins = {};
  /// With Companions::weights, else empty; not in `token_unique`: [num_rows], 0 for padding.
  std::span<const float> weights = {};
  /// `padded` only: [local experts, ranks], the rows that each source sent.
  std::span<const std::int32_t> source_counts = {};
  Plan plan = {};
};

/// Result of combine_backward.
struct Gradients {
  /// [plan.num_rows(), hidden] in the expert dtype: weight × gradient of the token. Padding of `expert_major` is zero;
  /// unused rows are unspecified, as in Rows::data.
  Tensor rows = {};
  /// [tokens, topk] f32: the gradient of each routing weight; 0 where dropped. Empty in `token_unique`.
  Tensor weights = {};
};

}  // namespace shunt
