// Steps of decoding with `padded` rows against the reference: bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "engine/small_shuffle.hpp"
#include "engine/steps.hpp"
#include "support/require_error.hpp"

namespace shunt::test {
namespace {

using PaddedAt = AtPlace;
INSTANTIATE_TEST_SUITE_P(At, PaddedAt, ::testing::Values(kHostThreads, kDeviceThreads), kNameOfPlace);

TEST_P(PaddedAt, ServesEveryNumberOfTokensHoweverEachRankSettlesItsTickets) {
  constexpr std::int64_t kMost = 256;
  const std::vector<std::vector<std::int64_t>> sizes = {{1, 0, 2, 3},       {31, 32, 33, 0},     {64, 63, 0, 65},
                                                        {127, 128, 1, 129}, {256, 255, 254, 0},  {0, 0, 0, 0},
                                                        {5, 100, 200, 17},  {256, 256, 256, 256}};
  std::vector<std::pair<StepShape, ShuffleCase>> steps;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const StepShape shape{.map = i % 2 == 0 ? map_with_replicas() : ExpertMap::contiguous(13, 4),
                          .topk = static_cast<std::int32_t>(1 + i),
                          .max_tokens = kMost,
                          .hidden = i % 3 == 0 ? 33 : 64,
                          .dtype = std::array{f32, bf16, f16}[i % 3],
                          .is_packed = i % 4 >= 2};
    steps.emplace_back(shape, draw_step(i, shape, sizes[i]));
  }
  ASSERT_NO_THROW(place().run(4, [&](World& world) {
    for (const auto& [shape, step] : steps) {
      Engine engine = make_engine(world, place(), shape);
      for (std::size_t turn = 0; turn < 3; ++turn)
        take(world, engine, step, {.asks = (turn + world.rank().index()) % 3 == 0});
      world.barrier();
    }
  }));
}

// Were a call to wait, or what it puts on the stream, rank 0 would miss its deadline.
TEST_P(PaddedAt, CallsWaitForNoOtherRank) {
  const StepShape shape{.map = ExpertMap::contiguous(4, 2)};
  const ShuffleCase step = draw_step(1, shape, {16, 5});
  ASSERT_NO_THROW(place().run(2, [&](World& world) {
    Engine engine = make_engine(world, place(), shape, std::chrono::seconds(2));
    take(world, engine, step);
    const auto one_after_the_other = [&](const std::function<void()>& call) {
      if (world.rank().value == 0) {
        call();
        const Tensor word = engine.allocate(f32, 1, 1);
        engine.copy(word, engine.allocate(f32, 1, 1));  // waits for the stream
      }
      world.barrier();
      if (world.rank().value == 1) call();
    };
    std::optional<RankOfCase> rank;
    Check finish;
    one_after_the_other([&] { finish = rank.emplace(world, engine, step).dispatch(); });
    finish();
    one_after_the_other([&] { finish = rank->combine(); });
    finish();
    world.barrier();
  }));
}

using DevicePadded = OnDevice;

TEST_F(DevicePadded, AnExpertThatATokenNamesTwiceIsDroppedOnce) {
  for (const std::int32_t topk : {2, 5, 8}) {
    const StepShape shape{.map = map_with_replicas(), .topk = topk, .max_tokens = 70};
    on_ranks(4, [&](World& world) {
      Engine engine = make_engine(world, kDeviceThreads, shape);
      for (std::uint64_t seed = 0; seed < 5; ++seed)
        take(world, engine, naming_twice(draw_step(seed, shape, {70, 33, 0, 69})));
    });
  }
}

TEST_F(DevicePadded, OperationsTakeTurns) {
  on_ranks(1, [](World& world) {
    Engine engine(world, kDeviceThreads.options({.hidden = 8, .dtype = f32}));
    const ConstTensor nothing = borrow(static_cast<const void*>(nullptr), f32, 0, 8);
    const StepShape shape{.map = ExpertMap::contiguous(2, 1)};
    const auto plan = [&] { return engine.plan({}, shape.map, shape.plan()); };
    const auto refuses = [](const std::function<void()>& call) {
      require_error(call, ErrorCode::invalid_argument, "take turns");
    };
    const Plan first = plan();
    const Tensor rows = engine.expert_out(first);
    refuses([&] { (void)engine.combine(first, rows); });
    (void)engine.dispatch(first, nothing);
    refuses([&] { (void)engine.dispatch(first, nothing); });
    refuses([&] { (void)engine.dispatch(plan(), nothing); });
    const std::vector<std::int32_t> expert{0};  // its rows are not those that were dispatched
    refuses([&] { (void)engine.combine(engine.plan({.experts = expert}, shape.map, shape.plan()), rows); });
    auto combined = engine.combine(first, rows);
    refuses([&] { (void)engine.combine(first, rows); });
    (void)engine.dispatch(first, nothing).wait();
    (void)combined.wait();
    (void)engine.combine(plan(), rows).wait();
  });
}

// More than an engine keeps memory for: plans that are held serve on, and a bound that was forgotten is made anew.
TEST_F(DevicePadded, PlansOfManyBoundsServe) {
  const auto step_of = [](std::int64_t bound) {
    return draw_step(1, {.map = ExpertMap::contiguous(4, 2), .max_tokens = bound}, {1, 1});
  };
  const ShuffleCase first = step_of(1);
  on_ranks(2, [&](World& world) {
    Engine engine = make_engine(world, kDeviceThreads, {.map = first.routing.map});
    RankOfCase held(world, engine, first);
    for (std::int64_t bound = 2; bound < 40; ++bound) {
      take(world, engine, step_of(bound));
      held.dispatch()();
      held.combine()();
    }
    take(world, engine, first);
  });
}

TEST_F(DevicePadded, AllPlansOfAMapHaveTheSameRows) {
  const StepShape shape{.map = ExpertMap::contiguous(2, 1)};
  on_ranks(1, [&](World& world) {
    Engine engine(world, kDeviceThreads.options({.hidden = 8, .dtype = f32}));
    const Plan first = engine.plan({}, shape.map, shape.plan());
    const Plan second = engine.plan({}, shape.map, shape.plan());
    EXPECT_EQ(engine.expert_out(first).data, engine.expert_out(second).data);
    EXPECT_EQ(first.device().expert_offsets.size(), 3u);
    EXPECT_TRUE(first.device().expert_counts.empty());
    EXPECT_THAT(first.expert_offsets(), ::testing::ElementsAre(0, 16, 32));
  });
}

}  // namespace
}  // namespace shunt::test
