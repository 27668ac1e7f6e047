#include "cli/layer/demand.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/fail.hpp"

namespace shunt::cli {

LayerDemand LayerDemand::of(const ShuffleConfig& config, const Workload& workload, std::size_t rank,
                            std::int64_t tile_rows) {
  const ExpertMap map = config.map();
  std::vector<std::int64_t> rows_of_expert(static_cast<std::size_t>(map.num_physical()));
  for (std::size_t source = 0; source < static_cast<std::size_t>(config.ranks); ++source)
    for (const PhysicalId expert : workload.routing(source).copies)
      if (expert.valid()) ++rows_of_expert[expert.index()];

  const std::int64_t rows = std::accumulate(rows_of_expert.begin(), rows_of_expert.end(), std::int64_t{0});
  if (rows == 0) fail(ErrorCode::invalid_argument, "--routing {}: no token has an expert", config.routing);

  std::vector<std::int64_t> aligned(static_cast<std::size_t>(config.ranks));
  for (std::size_t expert = 0; expert < rows_of_expert.size(); ++expert)
    aligned[map.rank(PhysicalId(expert)).index()] += (rows_of_expert[expert] + tile_rows - 1) / tile_rows * tile_rows;
  return {.rows = rows,
          .most_rows = workload.most_rows_of_a_rank(false),
          .aligned_rows = aligned[rank],
          .most_aligned_rows = *std::max_element(aligned.begin(), aligned.end()),
          .most_unique_rows = workload.most_rows_of_a_rank(true)};
}

}  // namespace shunt::cli
