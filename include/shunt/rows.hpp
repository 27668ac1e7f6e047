// What dispatch delivers.
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

/// Rows in the plan's layout with the companions that the engine was asked to carry. All memory lives as long as `rows`
/// (or a copy of it) does.
struct Rows {
  /// [plan.num_rows(), hidden] in the engine's row dtype. Padding of `expert_major` is zero; unused rows of `padded`
  /// hold anything.
  Tensor rows;
  /// fp8 rows only: [num_rows, scales_per_row(hidden)].
  std::span<const float> scales;
  /// Companions::ids: [num_rows].
  std::span<const RowOrigin> origins;
  /// Companions::weights, not in `token_unique`: [num_rows], 0 for padding.
  std::span<const float> weights;
  /// `padded` only: [local experts, ranks] rows that each source sent.
  std::span<const std::int32_t> source_counts;
  Plan plan;
};

}  // namespace shunt
