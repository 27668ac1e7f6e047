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
    std::uint32_t* cells = plan.tile_counts + column;
    std::uint32_t sum = 0;
    constexpr int kAtOnce = 16;  // loads on their way
    for (std::int32_t begin = 0; begin < shape.num_tiles(); begin += kAtOnce) {
      std::uint32_t here[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        here[i] = begin + i < shape.num_tiles() ? cells[std::int64_t{begin + i} * shape.num_columns()] : 0;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (begin + i < shape.num_tiles()) cells[std::int64_t{begin + i} * shape.num_columns()] = sum;
        sum += here[i];
      }
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
  // How many rows a column has before this rank's, with them, and in all.
  struct Sums {
    long long before = 0, with_own = 0, all = 0;
  };
  const auto sums_of = [&](std::int32_t column) {
    Sums sums;
#pragma unroll 8
    for (std::int32_t source = 0; source < map.num_ranks; ++source) {
      const long long here = counts[source * stride + column];
      sums.before += source < self ? here : 0;
      sums.with_own += source <= self ? here : 0;
      sums.all += here;
    }
    return sums;
  };
  if (threadIdx.x == 0) most_rows = 0;

  // Each thread a run of experts: blocks of experts start at multiples of the alignment, so their sizes add up.
  const std::int32_t per_thread = (shape.num_physical + kThreads - 1) / kThreads;
  const std::int32_t first = min(static_cast<std::int32_t>(threadIdx.x) * per_thread, shape.num_physical);
  const std::int32_t last = min(first + per_thread, shape.num_physical);
  long long rows = 0;
  for (std::int32_t expert = first; expert < last; ++expert) {
    const Sums asked = sums_of(expert);
    const auto accepted = [&](long long sum) {
      return static_cast<std::int32_t>(min(sum, static_cast<long long>(rules.capacity)));
    };
    plan.first_slot[expert] = accepted(asked.before);
    plan.kept[expert] = accepted(asked.with_own) - accepted(asked.before);
    plan.accepted[expert] = accepted(asked.all);
    rows += rules.aligned(plan.accepted[expert]);
  }
  long long begin = 0;
  Scan(scan).ExclusiveSum(rows, begin);
  for (std::int32_t expert = first; expert < last; ++expert) {
    plan.expert_begin[expert] = begin;
    begin += rules.aligned(plan.accepted[expert]);
  }
  if (last == shape.num_physical && first < last) plan.expert_begin[last] = begin;
  if (shape.num_physical == 0 && threadIdx.x == 0) plan.expert_begin[0] = 0;
  __syncthreads();

  for (std::int32_t expert = threadIdx.x; expert < shape.num_physical; expert += kThreads)
    plan.first_slot[expert] += static_cast<std::int32_t>(plan.expert_begin[expert] -
                                                         plan.expert_begin[map.first_of_rank[map.rank_of[expert]]]);
  for (std::int32_t rank = threadIdx.x; rank < map.num_ranks; rank += kThreads) {
    const std::int32_t column = shape.num_physical + rank;
    const Sums tokens = sums_of(column);
    plan.first_unique[rank] = static_cast<std::int32_t>(tokens.before);
    const long long experts =
        plan.expert_begin[map.first_of_rank[rank + 1]] - plan.expert_begin[map.first_of_rank[rank]];
    const long long of_rank = shape.unique ? tokens.all : experts;
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
          static_cast<std::int32_t>(min(static_cast<long long>(plan.accepted[first_here + local]), most - offset));
  }
  __syncthreads();
}

}  // namespace shunt::device
