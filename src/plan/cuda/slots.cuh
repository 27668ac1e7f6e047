// The second step of a plan, after the exchange of counts: computes where each rank's rows begin.
#pragma once

#include <cub/block/block_scan.cuh>

#include "plan/cuda/map_tables.hpp"
#include "plan/cuda/plan_arrays.hpp"

namespace shunt::device {

/// Replaces the counts of each tile by the sums over earlier tiles, and calls report(column, total). Executed by one
/// whole block.
template <class Report>
__device__ inline void add_up_tiles(const PlanShape& shape, const PlanArrays& plan, const Report& report) {
  for (std::int32_t column = threadIdx.x; column < shape.num_columns(); column += blockDim.x) {
    std::uint32_t* cells = plan.tile_counts + column;
    std::uint32_t sum = 0;
    constexpr int kAtOnce = 16;  // loads in flight
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
    report(column, sum);
  }
}

/// Rows of a rank's experts, summed from the rank's first expert on.
struct RunningRows {
  long long rows = 0;
  bool starts_rank = false;  ///< the sum includes its rank's first expert

  struct Add {
    __device__ RunningRows operator()(const RunningRows& a, const RunningRows& b) const {
      return b.starts_rank ? b : RunningRows{a.rows + b.rows, a.starts_rank};
    }
  };
};

/// Computes where this rank's rows begin on every rank, and what this rank receives. Executed by one whole block of
/// kThreads. counts: [ranks, columns], the counts of every rank; stride: elements between the rows of two ranks.
template <int kThreads>
__device__ PlanSizes derive_slots(const PlanShape& shape, const MapTables& map, const SlotRules& rules,
                                  std::int32_t self, const std::uint32_t* counts, std::int64_t stride,
                                  const PlanArrays& plan) {
  using Scan = cub::BlockScan<RunningRows, kThreads>;
  __shared__ typename Scan::TempStorage scan;
  __shared__ long long expert_rows, unique_rows;     // rows of this rank
  __shared__ long long most_rows, most_expert_rows;  // maxima over all ranks
  if (threadIdx.x == 0) expert_rows = unique_rows = most_rows = most_expert_rows = 0;
  __syncthreads();

  // Rows of a column: those of lower sources, those up to this rank, and all.
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
  const auto accepted = [&](long long rows) {
    return static_cast<std::int32_t>(min(rows, static_cast<long long>(rules.capacity)));
  };

  // Ranks are assigned from the last thread down, because the first threads have experts.
  for (std::int32_t rank = kThreads - 1 - threadIdx.x; rank < map.num_ranks; rank += kThreads) {
    const Sums tokens = sums_of(shape.num_physical + rank);
    plan.first_unique[rank] = static_cast<std::int32_t>(tokens.before);
    if (rank == self) unique_rows = tokens.all;
    if (shape.unique) atomicMax(&most_rows, tokens.all);
  }

  // Each thread handles a run of experts, twice: to sum their rows, and to compute where they begin.
  const std::int32_t per_thread = (shape.num_physical + kThreads - 1) / kThreads;
  const std::int32_t first = min(static_cast<std::int32_t>(threadIdx.x) * per_thread, shape.num_physical);
  const std::int32_t last = min(first + per_thread, shape.num_physical);
  const auto starts_rank = [&](std::int32_t expert) {
    return expert == 0 || map.rank_of[expert] != map.rank_of[expert - 1];
  };
  RunningRows run;
  for (std::int32_t expert = first; expert < last; ++expert)
    run = RunningRows::Add()(run, {rules.aligned(accepted(sums_of(expert).all)), starts_rank(expert)});
  RunningRows before;
  Scan(scan).ExclusiveScan(run, before, RunningRows(), RunningRows::Add());

  constexpr long long kMost = 0x7fff'ffffll;
  const long long most = shape.unique ? kMost : rules.max_rows;
  long long begin = before.rows;
  for (std::int32_t expert = first; expert < last; ++expert) {
    const Sums asked = sums_of(expert);
    const std::int32_t rank = map.rank_of[expert];
    if (starts_rank(expert)) begin = 0;
    const long long end = begin + rules.aligned(accepted(asked.all));
    const long long first_slot = min(begin + accepted(asked.before), most);
    plan.first_slot[expert] = static_cast<std::int32_t>(first_slot);
    plan.kept[expert] = static_cast<std::int32_t>(
        min(static_cast<long long>(accepted(asked.with_own) - accepted(asked.before)), most - first_slot));
    const bool ends_rank = expert + 1 == shape.num_physical || map.rank_of[expert + 1] != rank;
    if (ends_rank) atomicMax(&most_expert_rows, end);
    if (rank == self) {
      const std::int32_t local = expert - map.first_of_rank[self];
      const long long offset = min(begin, most);
      plan.expert_offsets[local] = static_cast<std::int32_t>(offset);
      plan.expert_counts[local] =
          static_cast<std::int32_t>(min(static_cast<long long>(accepted(asked.all)), most - offset));
      if (ends_rank) expert_rows = end;
    }
    begin = end;
  }
  __syncthreads();
  const auto clamped = [](long long rows, long long bound) { return static_cast<std::int32_t>(min(rows, bound)); };
  const long long asked_for = shape.unique ? most_rows : most_expert_rows;
  const PlanSizes sizes{.num_rows = clamped(shape.unique ? unique_rows : expert_rows, rules.max_rows),
                        .num_expert_rows = clamped(expert_rows, most),
                        .overflowed = asked_for > rules.max_rows || most_expert_rows > kMost,
                        .most_rows = clamped(asked_for, kMost)};
  if (threadIdx.x == 0) {
    plan.expert_offsets[shape.num_local] = sizes.num_expert_rows;
    *plan.sizes = sizes;
  }
  return sizes;
}

}  // namespace shunt::device
