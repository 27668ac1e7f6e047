// Plans with a bound on rows, which devices of one node can make.
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "engine/small_shuffle.hpp"
#include "engine/steps.hpp"
#include "support/require.hpp"
#include "support/require_error.hpp"

namespace shunt::test {
namespace {

using Bounds = OnDevice;

// Without a graph the rows are their rank's until it dispatches, whatever others have called.
TEST_F(Bounds, RowsThatCameWithThePlanAreNotWrittenBeforeTheirRankDispatches) {
  on_ranks(2, [](World& world, SmallShuffle& shuffle) {
    Engine& engine = shuffle.engine();
    const Tensor rows = engine.allocate(f32, 16, SmallShuffle::kHidden);
    poison(engine, rows);
    shuffle.plan({.max_rows = 16, .rows = rows});
    (void)shuffle.current_plan().read();
    if (world.rank().value == 0) (void)shuffle.dispatch();
    world.barrier();
    if (world.rank().value == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // in which rank 0 could write
      require(all_are(bytes_of(engine, rows), std::byte{0xa5}), "nothing was written here");
      (void)shuffle.dispatch();
    }
    (void)shuffle.combine().wait();
    require(!all_are(bytes_of(engine, rows), std::byte{0xa5}), "rows have come");
  });
}

TEST_F(Bounds, MoreRowsAreAnErrorOnAllRanks) {
  on_ranks(3, [](World&, SmallShuffle& shuffle) {
    shuffle.route_all_to(0);
    shuffle.plan({.max_rows = 23});
    require_error([&] { (void)shuffle.dispatch().wait(); }, ErrorCode::invalid_argument,
                  "24 rows, more than max_rows = 23");
  });
}

// Slots don't depend on the bound: what is dropped is what stands beyond it.
TEST_F(Bounds, DropTheRowsBeyondThemAndNoOthers) {
  constexpr std::int64_t kBound = 601;  // in the middle of a block of padding or of an expert, of 800 rows on average
  const StepShape shape{.map = ExpertMap::contiguous(12, 3),
                        .topk = 3,
                        .max_tokens = 300,
                        .hidden = 24,
                        .layout = Layout::expert_major,
                        .alignment = 4};
  const ShuffleCase step = draw_step(1, shape, {300, 300, 300});
  on_ranks(3, [&](World& world) {
    Engine engine = make_engine(world, kDeviceThreads, shape);
    const ConstTensor expected = step.expected.dispatch[world.rank().index()].rows.tensor();
    ASSERT_GT(expected.rows, kBound);
    const Plan plan = engine.plan(step.routing.routing(world.rank()), shape.map,
                                  {.alignment = 4, .max_rows = kBound, .overflow = Overflow::drop});
    const Tensor rows = engine.allocate(f32, kBound, shape.hidden);
    poison(engine, rows);
    (void)engine.dispatch(plan, step.x[world.rank().index()].tensor(), {.out = rows}).wait();
    EXPECT_TRUE(plan.read().overflowed);
    EXPECT_EQ(plan.read().num_rows, kBound);
    EXPECT_TRUE(bytes_of(engine, rows) == bytes_of(engine, first_rows(expected, kBound)));
  });
}

// Six experts of 2^30 rows each: slots in 32 bits would be those of other experts, or negative.
TEST_F(Bounds, RowsBeyond32BitsAreDroppedOrAnError) {
  on_ranks(1, [](World& world) {
    constexpr std::int32_t kExperts = 6;
    const EngineOptions options = kDeviceThreads.options({.hidden = 4, .dtype = f32}, small_device(kExperts));
    std::vector<std::int32_t> experts;
    std::vector<float> x, expected(kExperts * 4);
    for (std::int32_t token = 0; token < kExperts; ++token) {
      experts.push_back(token);
      x.insert(x.end(), 4, static_cast<float>(1 + token));
    }
    std::fill_n(expected.begin(), 4, 1.0f);
    const Routing routing{.experts = experts};
    const ExpertMap map = ExpertMap::contiguous(kExperts, 1);
    const ConstTensor tokens = borrow(static_cast<const void*>(x.data()), f32, kExperts, 4);
    {
      Engine engine(world, options);
      const Plan plan = engine.plan(routing, map, {.alignment = 1 << 30, .max_rows = 8, .overflow = Overflow::drop});
      EXPECT_TRUE(plan.read().overflowed);
      const Rows rows = engine.dispatch(plan, tokens).wait();
      EXPECT_EQ(floats_of(engine, engine.combine(plan, rows.data).wait()), expected);
    }
    Engine engine(world, options);
    require_error([&] { (void)engine.plan(routing, map, {.alignment = 1 << 30}); }, ErrorCode::invalid_argument,
                  "more than max_rows");
  });
}

TEST_F(Bounds, WhatCantBeBoundedIsRefused) {
  on_ranks(2, [](World&, SmallShuffle& shuffle) {
    const auto refuses = [&](const PlanOptions& options, const char* why) {
      require_error([&] { shuffle.plan(options); }, ErrorCode::invalid_argument, why);
    };
    refuses({.layout = Layout::token_unique, .max_rows = 20, .overflow = Overflow::drop},
            "dropping rows needs expert_major");
    refuses({.layout = Layout::padded, .max_tokens = 8, .max_rows = 20}, "a bound on padded rows is max_tokens alone");
    refuses({.max_rows = -1}, "max_rows is -1");
    shuffle.round_trip();
  });
}

TEST_F(Bounds, RowsThatCantComeWithAPlanAreRefused) {
  on_ranks(1, [](World& world) {
    const Engine lender(world, kDeviceThreads.options({.hidden = 130}));
    const std::array<std::int32_t, 3> experts = {0, 0, 0};
    const auto elsewhere = [&](DType dtype, std::int64_t rows, std::int64_t cols) {
      Tensor tensor = lender.allocate(dtype, rows + 1, cols);  // where no block begins
      tensor.data += size_of(dtype);
      tensor.rows = rows;
      return tensor;
    };
    const auto shuffle = [&](DType dtype, const PlanOptions& options, const DispatchOptions& dispatch) {
      Engine engine(world, kDeviceThreads.options({.hidden = 130, .dtype = dtype}));
      const Plan plan = engine.plan({.experts = experts}, ExpertMap::contiguous(2, 1), options);
      (void)engine.dispatch(plan, lender.allocate(bf16, 3, 130), dispatch).wait();
    };
    const auto refuses = [&](DType dtype, const PlanOptions& options, const char* why,
                             const DispatchOptions& dispatch = {}) {
      require_error([&] { shuffle(dtype, options, dispatch); }, ErrorCode::invalid_argument, why);
    };
    const Tensor rows = lender.allocate(bf16, 4, 130);
    const Tensor fp8_rows = lender.allocate(fp8_e4m3, 4, 130);
    const Tensor scales = lender.allocate(f32, 4, 2);
    shuffle(bf16, {.max_rows = 4, .rows = rows}, {});
    shuffle(fp8_e4m3, {.max_rows = 4, .rows = fp8_rows, .row_scales = scales}, {});
    refuses(bf16, {.rows = rows}, "rows need max_rows");
    refuses(bf16, {.max_rows = 3, .rows = rows}, "rows is [4, 130], expected [3, 130]");
    refuses(bf16, {.max_rows = 4, .rows = lender.allocate(f32, 4, 130)}, "rows is f32, expected bf16");
    refuses(bf16, {.max_rows = 4, .rows = elsewhere(bf16, 4, 130)}, "rows did not come from Engine::allocate");
    refuses(bf16, {.max_rows = 4, .row_scales = scales}, "row_scales without rows");
    refuses(bf16, {.max_rows = 4, .rows = rows, .row_scales = scales}, "row_scales come with fp8 rows");
    refuses(fp8_e4m3, {.max_rows = 4, .rows = fp8_rows}, "row_scales come with fp8 rows");
    refuses(fp8_e4m3, {.max_rows = 4, .rows = fp8_rows, .row_scales = elsewhere(f32, 4, 2)},
            "row_scales did not come from Engine::allocate");
    refuses(bf16, {.max_rows = 4, .rows = rows}, "it takes no out", {.out = rows});
  });
}

}  // namespace
}  // namespace shunt::test
