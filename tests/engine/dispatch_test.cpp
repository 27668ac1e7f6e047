#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "shunt/engine.hpp"

namespace shunt::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Gt;

constexpr std::int64_t kHidden = 4;

// Rank r has tokens of value 10 r and 10 r + 1; the first goes to experts 0 and 1, the second to expert 1.
struct TwoTokens {
  TwoTokens(World& world, const EngineOptions& options, const PlanOptions& plan_options = {})
      : engine(world, options),
        plan(engine.plan({experts, weights, 2}, ExpertMap::contiguous(2, world.size()), plan_options)) {
    for (const int token : {0, 1})
      x.insert(x.end(), static_cast<std::size_t>(kHidden), static_cast<float>(10 * world.rank().value + token));
  }

  Rows dispatch(const DispatchOptions& options = {}) {
    return engine.dispatch(plan, borrow(static_cast<const void*>(x.data()), f32, 2, kHidden), options).wait();
  }

  std::vector<std::int32_t> experts = {0, 1, 1, -1};
  std::vector<float> weights = {0.5f, 0.25f, 0.125f, 9.0f};
  Engine engine;
  Plan plan;
  std::vector<float> x{};
};

std::vector<float> first_column(const Tensor& rows) {
  std::vector<float> column;
  for (std::int64_t row = 0; row < rows.rows; ++row) column.push_back(*reinterpret_cast<const float*>(rows.row(row)));
  return column;
}

// So that a new block of the engine is not zero by chance.
void dirty_free_memory(World& world) {
  const Tensor block = world.allocate(f32, 64, 64);
  std::ranges::fill(block.as<float>(), -1.0f);
}

TEST(Dispatch, GroupsRowsByExpertThenSourceThenTokenWithTheirOriginsAndWeights) {
  World::spawn(2, [](World& world) {
    TwoTokens shuffle(world, {.hidden = kHidden, .dtype = f32, .companions = {.ids = true, .weights = true}});
    const Rows rows = shuffle.dispatch();
    if (world.rank() == RankId(0)) {
      EXPECT_THAT(first_column(rows.data), ElementsAre(0, 10));
      EXPECT_THAT(rows.origins, ElementsAre(RowOrigin{0, 0}, RowOrigin{1, 0}));
      EXPECT_THAT(rows.weights, ElementsAre(0.5f, 0.5f));
    } else {
      EXPECT_THAT(first_column(rows.data), ElementsAre(0, 1, 10, 11));
      EXPECT_THAT(rows.origins, ElementsAre(RowOrigin{0, 0}, RowOrigin{0, 1}, RowOrigin{1, 0}, RowOrigin{1, 1}));
      EXPECT_THAT(rows.weights, ElementsAre(0.25f, 0.125f, 0.25f, 0.125f));
    }
  });
}

TEST(Dispatch, WritesIntoSymmetricOutWithoutMemoryOfItsOwnAndLeavesWhatSurroundsItAlone) {
  World::spawn(2, [](World& world) {
    TwoTokens shuffle(world, {.hidden = kHidden, .dtype = f32}, {.alignment = 3});
    const std::int64_t num_rows = shuffle.plan.num_rows();
    const Tensor whole = world.allocate(f32, num_rows + 2, kHidden);
    std::ranges::fill(whole.as<float>(), -1.0f);
    Tensor middle = whole;
    middle.data = whole.row(1);
    middle.rows = num_rows;
    const std::size_t before = world.live_bytes();
    const Rows rows = shuffle.dispatch({.out = middle});
    EXPECT_EQ(world.live_bytes(), before);
    EXPECT_EQ(rows.data.data, middle.data);
    world.barrier();
    EXPECT_THAT(whole.as<float>().first(kHidden), Each(-1.0f));
    EXPECT_THAT(whole.as<float>().last(kHidden), Each(-1.0f));
    EXPECT_THAT(whole.as<float>().subspan(kHidden, static_cast<std::size_t>(num_rows * kHidden)), Each(Ge(0.0f)));
  });
}

TEST(Dispatch, KeepsCompanionsWithRowsThatWereCopiedOut) {
  World::spawn(2, [](World& world) {
    TwoTokens shuffle(world, {.hidden = kHidden, .dtype = f32, .companions = {.weights = true}});
    std::vector<float> out(static_cast<std::size_t>(shuffle.plan.num_rows() * kHidden));
    const Rows rows = shuffle.dispatch({.out = borrow(out.data(), f32, shuffle.plan.num_rows(), kHidden)});
    dirty_free_memory(world);
    EXPECT_THAT(rows.weights, Each(Gt(0.0f)));
  });
}

TEST(Dispatch, IntoForeignMemoryKeepsNoBlock) {
  World::spawn(1, [](World& world) {
    TwoTokens shuffle(world, {.hidden = kHidden, .dtype = f32});
    const std::size_t before = world.live_bytes();
    std::vector<float> out(3 * kHidden);
    (void)shuffle.dispatch({.out = borrow(out.data(), f32, 3, kHidden)});
    EXPECT_THAT(out, ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1));
    while (world.live_bytes() != before) std::this_thread::yield();  // or the test times out
  });
}

}  // namespace
}  // namespace shunt::test
