// Where rows stand in their receivers' outputs, from counts alone: experts ascend, then source ranks, then tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/count_sums.hpp"
#include "shunt/expert_map.hpp"

namespace shunt {

/// The expert-major rows of all ranks.
struct ExpertRows {
  std::vector<std::int64_t> offsets;       ///< [physical experts]: first row of each on its rank
  std::vector<std::int64_t> totals;        ///< [physical experts]: rows without padding; empty for `padded`
  std::vector<std::int32_t> first_slot;    ///< [physical experts]: slot of this rank's first row for each
  std::vector<std::int64_t> rows_of_rank;  ///< [ranks]: padding included, also behind the last expert
};

/// Throws Error(invalid_argument) if a rank's rows don't fit 32 bits; every rank then finds the same.
ExpertRows expert_rows(const CountSums& sums, const ExpertMap& map, RankId self, std::int32_t alignment);

ExpertRows padded_rows(const ExpertMap& map, RankId self, std::int64_t max_tokens);

/// The rows of all ranks in `token_unique`.
struct UniqueRows {
  std::vector<std::int32_t> first_slot;    ///< [ranks]: slot of this rank's first token for each
  std::vector<std::int64_t> rows_of_rank;  ///< [ranks]
};

/// Throws as expert_rows does.
UniqueRows unique_rows(const CountSums& sums, RankId self);

}  // namespace shunt
