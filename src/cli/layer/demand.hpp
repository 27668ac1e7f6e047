// How many rows a workload brings to the ranks' experts.
#pragma once

#include <cstdint>

#include "cli/shuffle/workload.hpp"

namespace shunt::cli {

struct LayerDemand {
  std::int64_t rows = 0;               ///< one per (token, expert), over all ranks
  std::int64_t most_rows = 0;          ///< … of any rank
  std::int64_t most_aligned_rows = 0;  ///< … with every expert's filled up to whole tiles
  std::int64_t most_unique_rows = 0;   ///< one per (token, rank), of any rank

  static LayerDemand of(const ShuffleConfig& config, const Workload& workload, std::int64_t tile_rows);
};

}  // namespace shunt::cli
