// Steps that share all but their routings and rows: cases whose inputs and outputs are in memory that needs no copies.
#pragma once

#include <chrono>
#include <vector>

#include "engine/place.hpp"
#include "engine/rank_of_case.hpp"

namespace shunt::test {

/// What all steps share.
struct StepShape {
  ExpertMap map;
  std::int32_t topk = 4;
  std::int64_t max_tokens = 16;
  std::int64_t hidden = 40;
  DType dtype = f32;
  Layout layout = Layout::padded;
  bool is_packed = false;
  std::int32_t alignment = 1;
  std::int64_t capacity = PlanOptions::kUnlimited;
  std::int64_t max_rows = 0;        ///< of a bounded plan
  bool has_rows_with_plan = false;  ///< of a bounded plan: it is given the memory for rows, else dispatch is

  [[nodiscard]] EngineOptions options() const { return {.hidden = hidden, .dtype = dtype}; }
  /// But for the bound.
  [[nodiscard]] PlanOptions plan() const {
    return {
        .layout = layout, .alignment = alignment, .capacity = capacity, .max_tokens = max_tokens, .packed = is_packed};
  }
};

/// Equal arguments give equal steps. Some entries are dropped.
ShuffleCase draw_step(std::uint64_t seed, const StepShape& shape, const std::vector<std::int64_t>& num_tokens);

/// As if these ranks had no tokens, and what others send to them were dropped. Without gradients.
ShuffleCase without_ranks(const ShuffleCase& step, const std::vector<RankId>& lost);

/// As if every second choice of a token were the one before, which changes nothing but that it is dropped. Without
/// gradients.
ShuffleCase naming_twice(const ShuffleCase& step);

/// Two or three copies of some of ten experts on four ranks, with shares.
ExpertMap map_with_replicas();

/// Experts 1 and 4 of nine on four ranks have a copy on the lost one and one elsewhere.
StepShape shape_with_copies_on(RankId lost);

/// Collective.
Engine make_engine(World& world, const Place& place, const StepShape& shape,
                   std::chrono::milliseconds deadline = std::chrono::seconds(20));

/// Plans, dispatches and combines on this rank; throws what differs from the reference.
void take(World& world, Engine& engine, const ShuffleCase& step, const Caller& caller = {});

}  // namespace shunt::test
