// The second step of a plan, once all counts are here: where each rank's rows begin.
#pragma once

#include <cub/block/block_scan.cuh>

#include "plan/cuda/map_tables.hpp"
#include "plan/cuda/plan_arrays.hpp"
#include "plan/cuda/slot_rules.hpp"

namespace shunt::device {

/// Turns the counts of tiles into what earlier tiles hold, and adds them up. Called by one whole block.
__device__ inline void add_up_tiles(const PlanShape& shape, const PlanArrays& plan) {
  for (std::int32_t column = threadIdx.x; column < shape.num_columns(); column += blockDim.x) {
    std::uint32_t sum = 0;
    for (std::int32_t tile = 0; tile < shape.num_tiles(); ++tile) {
      std::uint32_t& cell = plan.tile_counts[std::int64_t{tile} * shape.num_columns() + column];
      const std::uint32_t here = cell;
      cell = sum;
      sum += here;
    }
    plan.totals[column] = sum;
  }
}

/// Called by one whole block of kThreads. `counts` is [ranks, columns], what every rank said; `stride` the distance of
/// its rows.
template <int kThreads>
__device__ void derive_slots(const PlanShape& shape, const MapTables& map, const SlotRules& rules, std::int32_t self,
                             const std::uint32_t* counts, std::int64_t stride, const PlanArrays& plan) {
  using Scan = cub::BlockScan<long long, kThreads>;
  __shared__ typename Scan::TempStorage scan;
  __shared__ long long begin_here;
  __shared__ int most_rows;
  const auto sum_of = [&](std::int32_t column, std::int32_t end) {
    long long sum = 0;
    for (std::int32_t source = 0; source < end; ++source) sum += counts[source * stride + column];
    return sum;
  };
  const auto accepted = [&](std::int32_t expert, std::int32_t sources) {
    return min(sum_of(expert, sources), static_cast<long long>(rules.capacity));
  };
  if (threadIdx.x == 0) most_rows = 0;

  // Each thread a run of experts: blocks of experts start at multiples of the alignment, so their sizes add up.
  const std::int32_t per_thread = (shape.num_physical + kThreads - 1) / kThreads;
  const std::int32_t first = min(static_cast<std::int32_t>(threadIdx.x) * per_thread, shape.num_physical);
  const std::int32_t last = min(first + per_thread, shape.num_physical);
  long long rows = 0;
  for (std::int32_t expert = first; expert < last; ++expert)
    rows += rules.aligned(accepted(expert, map.num_ranks));
  long long begin = 0;
  Scan(scan).ExclusiveSum(rows, begin);
  // Offsets in the order of all experts for now; those of a rank's first expert are subtracted below.
  for (std::int32_t expert = first; expert < last; ++expert) {
    const long long before = accepted(expert, self);
    plan.first_slot[expert] = static_cast<std::int32_t>(before);
    plan.kept[expert] = static_cast<std::int32_t>(accepted(expert, self + 1) - before);
    plan.expert_begin[expert] = begin;
    begin += rules.aligned(accepted(expert, map.num_ranks));
  }
  if (last == shape.num_physical && first < last) plan.expert_begin[last] = begin;
  if (shape.num_physical == 0 && threadIdx.x == 0) plan.expert_begin[0] = 0;
  __syncthreads();

  for (std::int32_t expert = threadIdx.x; expert < shape.num_physical; expert += kThreads)
    plan.first_slot[expert] += static_cast<std::int32_t>(plan.expert_begin[expert] -
                                                         plan.expert_begin[map.first_of_rank[map.rank_of[expert]]]);
  for (std::int32_t rank = threadIdx.x; rank < map.num_ranks; rank += kThreads) {
    const std::int32_t column = shape.num_physical + rank;
    const long long unique = sum_of(column, map.num_ranks);
    plan.first_unique[rank] = static_cast<std::int32_t>(sum_of(column, self));
    const long long experts =
        plan.expert_begin[map.first_of_rank[rank + 1]] - plan.expert_begin[map.first_of_rank[rank]];
    const long long of_rank = shape.unique ? unique : experts;
    atomicMax(&most_rows, static_cast<int>(min(of_rank, 0x7fff'ffffll)));
    if (rank != self) continue;
    plan.sizes->num_rows = static_cast<std::int32_t>(min(of_rank, static_cast<long long>(rules.max_rows)));
    plan.sizes->num_expert_rows =
        static_cast<std::int32_t>(shape.unique ? experts : min(experts, static_cast<long long>(rules.max_rows)));
    begin_here = plan.expert_begin[map.first_of_rank[rank]];
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    plan.sizes->most_rows = most_rows;
    plan.sizes->overflowed = most_rows > rules.max_rows;
  }
  const std::int32_t first_here = map.first_of_rank[self];
  for (std::int32_t local = threadIdx.x; local <= shape.num_local; local += kThreads) {
    const long long most = shape.unique ? 0x7fff'ffffll : rules.max_rows;
    const long long offset = min(plan.expert_begin[first_here + local] - begin_here, most);
    plan.expert_offsets[local] = static_cast<std::int32_t>(offset);
    if (local < shape.num_local)
      plan.expert_counts[local] =
          static_cast<std::int32_t>(min(accepted(first_here + local, map.num_ranks), most - offset));
  }
  __syncthreads();
}

}  // namespace shunt::device
