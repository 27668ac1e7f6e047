// Planning, dispatch and combine in CUDA graphs that are replayed with other routings.
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "bench/reference/shuffle.hpp"
#include "core/cuda/captured_graph.hpp"
#include "core/cuda/check.hpp"
#include "engine/cuda/small_shuffle.hpp"
#include "shunt/device_engine.hpp"
#include "support/cuda/device.hpp"
#include "support/cuda/launches.hpp"
#include "support/dice.hpp"
#include "support/random_case.hpp"
#include "support/require_error.hpp"

namespace shunt::test {
namespace {

constexpr std::int32_t kRanks = 4;
constexpr std::int64_t kTokens = 300;
constexpr std::int32_t kTopk = 4;
constexpr std::int32_t kExperts = 12;
constexpr std::int64_t kHidden = 40;
constexpr std::int64_t kMaxRows = 1400;

using Graph = device::CapturedGraph;

/// A routing and rows of all ranks, and what must come of them.
struct Step {
  RandomCase routing;
  std::vector<HostRows> x{}, expert_out{};
  std::vector<PlanData> plans{};
  std::vector<ReferenceRows> rows{};
  std::vector<HostRows> results{};
};

/// With copies of some experts in `token_unique`, and a capacity that drops rows.
ExpertMap map_of(Layout layout) {
  if (layout != Layout::token_unique) return ExpertMap::contiguous(kExperts, kRanks);
  return ExpertMap::from_placement(kExperts, {{0, 1, 2, 9}, {3, 4, 5, 0}, {6, 7, 8, 0, 3}, {9, 10, 11, 3, 4}},
                                   {{3, 1, 1, 2}, {1, 1, 1, 5}, {1, 1, 1, 2, 2}, {1, 1, 1, 1, 4}});
}
std::int64_t capacity_of(Layout layout) { return layout == Layout::token_unique ? 200 : PlanOptions::kUnlimited; }

Step draw_step(std::uint64_t seed, Layout layout) {
  std::mt19937_64 generator(seed);
  Dice dice(generator);
  Step step{
      .routing = {
          Topology::single_node(kRanks),
          map_of(layout),
          {.layout = layout, .alignment = layout == Layout::expert_major ? 4 : 1, .capacity = capacity_of(layout)},
          kTopk,
          {}}};
  for (std::int32_t rank = 0; rank < kRanks; ++rank) {
    RankRouting& routing = step.routing.ranks.emplace_back();
    for (std::int64_t token = 0; token < kTokens; ++token) {
      const auto order = dice.permutation(kExperts);
      for (std::int32_t choice = 0; choice < kTopk; ++choice) {
        routing.experts.push_back(dice.one_in(9) ? -1 : order[static_cast<std::size_t>(choice)]);
        routing.weights.push_back(dice.weight());
      }
    }
  }
  const ReferenceShuffle reference(step.routing.routings(), step.routing.map, step.routing.topology,
                                   step.routing.options, {.hidden = kHidden, .dtype = f32});
  step.plans = reference.plans();
  const auto draw_rows = [&](std::int64_t rows) {
    HostRows matrix(f32, rows, kHidden);
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t col = 0; col < kHidden; ++col) matrix.set(row, col, dice.weight());
    return matrix;
  };
  for (const PlanData& plan : step.plans) {
    step.x.push_back(draw_rows(kTokens));
    step.expert_out.push_back(draw_rows(plan.num_rows()));
  }
  step.rows = reference.dispatch(step.x, {});
  step.results = reference.combine(step.expert_out);
  return step;
}

/// Who is given the memory for rows.
enum class RowsFor { plan, dispatch };

/// One rank's buffers and a graph of plan, dispatch and combine over them.
class Shuffler {
 public:
  Shuffler(World& world, const DeviceHeap& heap, DeviceEngine& engine, Layout layout,
           RowsFor rows_for = RowsFor::dispatch)
      : rank_(world.rank().index()),
        engine_(engine),
        experts_(heap.allocate(f32, kTokens, kTopk)),
        weights_(heap.allocate(f32, kTokens, kTopk)),
        x_(heap.allocate(f32, kTokens, kHidden)),
        rows_(heap.allocate(f32, kMaxRows, kHidden)),
        expert_out_(heap.allocate(f32, kMaxRows, kHidden)),
        result_(heap.allocate(f32, kTokens, kHidden)) {
    const ExpertMap map = map_of(layout);
    DevicePlanOptions options{.layout = layout,
                              .alignment = layout == Layout::expert_major ? 4 : 1,
                              .capacity = capacity_of(layout),
                              .max_rows = kMaxRows};
    DeviceDispatchOptions dispatch_options;
    (rows_for == RowsFor::plan ? options.rows : dispatch_options.out) = rows_;
    load(draw_step(0, layout));
    const auto shuffle = [&] {
      plan_ = engine_.plan({.experts = reinterpret_cast<const std::int32_t*>(experts_.data),
                            .weights = reinterpret_cast<const float*>(weights_.data),
                            .num_tokens = kTokens,
                            .topk = kTopk},
                           map, options);
      (void)engine_.dispatch(plan_, x_, dispatch_options);
      (void)engine_.combine(plan_, expert_out_, {.out = result_});
    };
    shuffle();
    (void)plan_.sizes();
    graph_.emplace(engine.stream(), shuffle);
  }

  void load(const Step& step) {
    const auto put = [&](const Tensor& to, std::span<const std::byte> from) {
      upload(to.data, from, engine_.stream());
    };
    put(experts_, std::as_bytes(std::span(step.routing.ranks[rank_].experts)));
    put(weights_, std::as_bytes(std::span(step.routing.ranks[rank_].weights)));
    put(x_, bytes_of(step.x[rank_]));
    put(expert_out_, bytes_of(step.expert_out[rank_]));
    poison(rows_.data, rows_.bytes(), engine_.stream());
    poison(result_.data, result_.bytes(), engine_.stream());
  }

  void replay() const { graph_->replay(); }

  void check(const Step& step) const {
    const DevicePlan::Sizes sizes = plan_.sizes();
    require(sizes.num_rows == step.plans[rank_].num_rows(), "the number of rows differs");
    Tensor rows = rows_;
    rows.rows = sizes.num_rows;
    const std::string of_rows = device_difference(rows, step.rows[rank_].rows, engine_.stream());
    require(of_rows.empty(), "dispatch " + of_rows);
    const std::string of_result = device_difference(result_, step.results[rank_], engine_.stream());
    require(of_result.empty(), "combine " + of_result);
  }

 private:
  static std::span<const std::byte> bytes_of(const HostRows& rows) {
    return {rows.tensor().data, rows.tensor().bytes()};
  }
  void require(bool holds, const std::string& what) const {
    if (!holds) throw std::runtime_error(fmt::format("rank {}: {}", rank_, what));
  }

  std::size_t rank_;
  DeviceEngine& engine_;
  Tensor experts_, weights_, x_, rows_, expert_out_, result_;
  DevicePlan plan_;
  std::optional<Graph> graph_;
};

DeviceEngineOptions engine_options() {
  return {.hidden = kHidden, .dtype = f32, .max_tokens = kTokens, .deadline = std::chrono::seconds(20)};
}

void replay_with_other_routings(Layout layout, RowsFor rows_for) {
  std::vector<Step> steps;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) steps.push_back(draw_step(seed, layout));
  ASSERT_NO_THROW(World::spawn(kRanks, [&](World& world) {
    const DeviceHeap heap(world, {.bytes = 32 << 20});
    DeviceEngine engine(world, heap, engine_options());
    Shuffler shuffler(world, heap, engine, layout, rows_for);
    for (const Step& step : steps) {
      shuffler.load(step);
      shuffler.replay();
      shuffler.check(step);
    }
    world.barrier();
  }));
}

TEST(DeviceGraph, IsReplayedWithOtherRoutings) {
  SHUNT_NEEDS_DEVICE();
  for (const Layout layout : {Layout::expert_major, Layout::token_unique})
    for (const RowsFor rows_for : {RowsFor::dispatch, RowsFor::plan}) replay_with_other_routings(layout, rows_for);
}

// Only in one graph: elsewhere nobody knows what runs between them.
TEST(DeviceGraph, ADispatchNextToThePlanThatHasItsRowsMeetsOnceLess) {
  SHUNT_NEEDS_DEVICE();
  for (const Layout layout : {Layout::expert_major, Layout::token_unique})
    ASSERT_NO_THROW(World::spawn(1, [&](World& world) {
      const DeviceHeap heap(world, {.bytes = 16 << 20});
      SmallShuffle shuffle(world, heap, std::chrono::seconds(20));
      const DevicePlanOptions bounded{.layout = layout, .max_rows = 16};
      DevicePlanOptions with_rows = bounded;
      with_rows.rows = heap.allocate(f32, 16, SmallShuffle::kHidden);
      shuffle.plan(bounded);
      const auto kernels = [&](const std::function<void()>& work) {
        return std::ssize(blocks_of_kernels(shuffle.engine().stream(), work));
      };
      const auto plan = kernels([&] { shuffle.plan(bounded); });
      const auto dispatch = kernels([&] { (void)shuffle.dispatch(); });
      const auto combine = kernels([&] { (void)shuffle.combine(); });
      const auto dispatch_behind = [&](const DevicePlanOptions& options) {
        shuffle.plan(options);
        (void)shuffle.dispatch();
      };
      EXPECT_EQ(kernels([&] { dispatch_behind(bounded); }), plan + dispatch);
      EXPECT_EQ(kernels([&] { dispatch_behind(with_rows); }), plan + dispatch - 1);
      EXPECT_EQ(kernels([&] { dispatch_behind(with_rows), (void)shuffle.dispatch(); }), plan + 2 * dispatch - 1);
      EXPECT_EQ(kernels([&] { shuffle.plan(with_rows); }), plan);
      EXPECT_EQ(kernels([&] { (void)shuffle.dispatch(); }), dispatch);
      const auto plan_combine_dispatch = [&] {
        shuffle.plan(with_rows);
        (void)shuffle.combine();
        (void)shuffle.dispatch();
      };
      EXPECT_EQ(kernels(plan_combine_dispatch), plan + combine + dispatch);
    }));
}

TEST(DeviceGraph, TwoOfOneEngineMayTakeTurns) {
  SHUNT_NEEDS_DEVICE();
  const Step a = draw_step(11, Layout::expert_major);
  const Step b = draw_step(12, Layout::token_unique);
  ASSERT_NO_THROW(World::spawn(kRanks, [&](World& world) {
    const DeviceHeap heap(world, {.bytes = 64 << 20});
    DeviceEngine engine(world, heap, engine_options());
    Shuffler first(world, heap, engine, Layout::expert_major);
    Shuffler second(world, heap, engine, Layout::token_unique);
    first.load(a);
    second.load(b);
    for (const int turn : {0, 1, 0, 0, 1, 1, 0}) (turn == 0 ? first : second).replay();
    first.check(a);
    second.check(b);
    world.barrier();
  }));
}

TEST(DeviceGraph, ARankThatReplaysLessOftenIsNamed) {
  SHUNT_NEEDS_DEVICE();
  ASSERT_NO_THROW(World::spawn(2, [&](World& world) {
    const DeviceHeap heap(world, {.bytes = 16 << 20});
    SmallShuffle shuffle(world, heap, std::chrono::milliseconds(300));
    shuffle.plan();
    const Graph graph(shuffle.engine().stream(), [&] { (void)shuffle.dispatch(); });
    graph.replay();
    if (world.rank().value == 0) {
      graph.replay();
      require_error([&] { (void)shuffle.current_plan().sizes(); }, ErrorCode::deadline, "rank 1 did not come");
    }
    world.barrier();
  }));
}

TEST(DeviceGraph, RefusesWhatTheHostWouldHaveToWaitFor) {
  SHUNT_NEEDS_DEVICE();
  ASSERT_NO_THROW(World::spawn(1, [&](World& world) {
    const DeviceHeap heap(world, {.bytes = 16 << 20});
    SmallShuffle shuffle(world, heap, std::chrono::seconds(20));
    shuffle.plan();
    const Graph graph(shuffle.engine().stream(), [&] {
      require_error([&] { shuffle.plan(); }, ErrorCode::invalid_argument, "what is captured needs max_rows");
      require_error([&] { (void)shuffle.current_plan().sizes(); }, ErrorCode::invalid_argument, "the host can't wait");
    });
    shuffle.round_trip();
  }));
}

TEST(DeviceGraph, RefusesRowsThatWouldNeedACopy) {
  SHUNT_NEEDS_DEVICE();
  ASSERT_NO_THROW(World::spawn(1, [&](World& world) {
    const DeviceHeap heap(world, {.bytes = 16 << 20});
    Arena arena(1 << 20);
    SmallShuffle shuffle(world, heap, std::chrono::seconds(20));
    shuffle.plan({.max_rows = 16});
    Tensor elsewhere{nullptr, f32, 16, SmallShuffle::kHidden, nullptr};
    elsewhere.data = arena.take(elsewhere.bytes());
    const Tensor x = heap.allocate(f32, SmallShuffle::kTokens, SmallShuffle::kHidden);
    DeviceEngine& engine = shuffle.engine();
    const DevicePlan& plan = shuffle.current_plan();
    const auto refuses = [](const std::function<void()>& call) {
      require_error(call, ErrorCode::invalid_argument, "DeviceHeap::allocate");
    };
    const Graph graph(engine.stream(), [&] {
      refuses([&] { (void)engine.dispatch(plan, x, {.out = elsewhere}); });
      refuses([&] { (void)engine.combine(plan, elsewhere); });
      refuses([&] { (void)engine.dispatch_backward(plan, elsewhere); });
      refuses([&] { (void)engine.combine_backward(plan, x, elsewhere); });
    });
    (void)engine.dispatch(plan, x, {.out = elsewhere}).wait();  // at a copy's cost
    shuffle.round_trip();
  }));
}

TEST(DeviceGraph, WhatThrowsInACaptureLeavesTheStreamUsable) {
  SHUNT_NEEDS_DEVICE();
  ASSERT_NO_THROW(World::spawn(1, [&](World& world) {
    const DeviceHeap heap(world, {.bytes = 16 << 20});
    SmallShuffle shuffle(world, heap, std::chrono::seconds(20));
    shuffle.plan();
    require_error([&] { const Graph graph(shuffle.engine().stream(), [&] { shuffle.plan(); }); },
                  ErrorCode::invalid_argument, "max_rows");
    shuffle.round_trip();
  }));
}

}  // namespace
}  // namespace shunt::test
