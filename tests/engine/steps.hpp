// Steps that share all but their routings and rows: what every rank brings, and what must come of it.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "bench/reference/shuffle.hpp"
#include "engine/place.hpp"
#include "shunt/engine.hpp"
#include "support/random_case.hpp"

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

/// Vectors of what ranks have are [ranks].
struct Step {
  RandomCase routing;
  std::vector<HostRows> x{}, expert_out{};
  std::vector<RankId> lost{};  ///< what is sent there is dropped
  std::vector<PlanData> plans{};
  std::vector<ReferenceRows> rows{};
  std::vector<HostRows> results{};
};

/// Equal arguments give equal steps. Some entries are dropped.
Step draw_step(std::uint64_t seed, const StepShape& shape, const std::vector<std::int64_t>& num_tokens);

/// As if this rank had no tokens, and what others send to it were dropped.
Step without_rank(const Step& step, const StepShape& shape, RankId lost);

/// As if every second choice of a token were the one before, which changes nothing but that it is dropped.
Step naming_twice(const Step& step, const StepShape& shape);

/// Two or three copies of some of ten experts on four ranks, with shares.
ExpertMap map_with_replicas();

/// Experts 1 and 4 of nine on four ranks have a copy on the lost one and one elsewhere.
StepShape shape_with_copies_on(RankId lost);

/// One rank's engine and buffers. Everything throws what differs from the reference.
class StepRank {
 public:
  /// How a ticket is settled.
  enum class Settle { by_waiting, by_asking };

  /// Collective.
  StepRank(World& world, const Place& place, const StepShape& shape,
           std::chrono::milliseconds deadline = std::chrono::seconds(20));
  /// On an engine that others use too.
  StepRank(Engine engine, RankId rank, const StepShape& shape);

  /// Returns without waiting for others.
  void issue_dispatch(const Step& step);
  void finish_dispatch(const Step& step, Settle settle = Settle::by_waiting);
  void issue_combine(const Step& step);
  void finish_combine(const Step& step, Settle settle = Settle::by_waiting);
  /// All of it.
  void dispatch(const Step& step, Settle settle = Settle::by_waiting);
  void combine(const Step& step, Settle settle = Settle::by_waiting);
  void take(const Step& step, Settle settle = Settle::by_waiting);

  /// Plan, dispatch and combine of so many tokens, for graphs; load() before replaying and compare() afterwards, both
  /// while no rank replays.
  void put_on_stream(std::int64_t num_tokens);
  void load(const Step& step);
  void compare(const Step& step);

  [[nodiscard]] Engine& engine() { return engine_; }

 private:
  void load_tokens(const Step& step);
  void load_expert_out(const Step& step);
  void plan(std::int64_t num_tokens);
  [[nodiscard]] Ticket<Rows> start_dispatch(std::int64_t num_tokens);
  void compare_rows(const Step& step);
  void compare_result(const Step& step);
  void put(const HostRows& rows, const Tensor& to);
  void require_same(const char* what, const Tensor& actual, const HostRows& expected,
                    const std::vector<bool>& compared = {});

  std::size_t rank_;
  StepShape shape_;
  Engine engine_;
  Tensor experts_, weights_, x_, result_;
  Tensor expert_out_{};
  Plan plan_{};
  Rows rows_{};
  std::optional<Ticket<Rows>> dispatched_{};
  std::optional<Ticket<Tensor>> combined_{};
};

}  // namespace shunt::test
