// How many rows a workload brings to the experts of a rank.
#pragma once

#include <cstdint>

#include "cli/shuffle/workload.hpp"

namespace shunt::cli {

struct LayerDemand {
  std::int64_t rows = 0;               ///< one per (token, expert), over all ranks
  std::int64_t most_rows = 0;          ///< … of any rank
  std::int64_t aligned_rows = 0;       ///< … of this rank, with every expert's filled up to whole tiles
  std::int64_t most_aligned_rows = 0;  ///< … of any rank
  std::int64_t most_unique_rows = 0;   ///< one per (token, rank), of any rank

  /// Throws Error(invalid_argument) if no token has an expert.
  static LayerDemand of(const ShuffleConfig& config, const Workload& workload, std::size_t rank,
                        std::int64_t tile_rows);
};

}  // namespace shunt::cli
