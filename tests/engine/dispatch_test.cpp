// What dispatch delivers, by hand, and in which memory; all else about rows is in shuffle_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "engine/to_everyone.hpp"

namespace shunt::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;

constexpr std::int32_t kHidden = ToEveryone::kHidden;

// Rank r has tokens of value 10 r and 10 r + 1; the first goes to experts 0 and 1, the second to expert 1.
TEST(Dispatch, GroupsRowsByExpertThenSourceThenTokenWithTheirOriginsAndWeights) {
  World::spawn(2, [](World& world) {
    Engine engine(world, {.hidden = 1, .dtype = f32, .companions = {.ids = true, .weights = true}});
    const std::vector<std::int32_t> experts = {0, 1, 1, -1};
    const std::vector<float> weights = {0.5f, 0.25f, 0.125f, 9.0f};
    const Plan plan = engine.plan({experts, weights, 2}, ExpertMap::contiguous(2, 2));
    const float first = 10 * static_cast<float>(world.rank().value);
    const std::vector<float> x = {first, first + 1};
    const Rows rows = engine.dispatch(plan, borrow(static_cast<const void*>(x.data()), f32, 2, 1)).wait();
    if (world.rank() == RankId(0)) {
      EXPECT_THAT(rows.data.as<float>(), ElementsAre(0, 10));
      EXPECT_THAT(rows.origins, ElementsAre(RowOrigin{0, 0}, RowOrigin{1, 0}));
      EXPECT_THAT(rows.weights, ElementsAre(0.5f, 0.5f));
    } else {
      EXPECT_THAT(rows.data.as<float>(), ElementsAre(0, 1, 10, 11));
      EXPECT_THAT(rows.origins, ElementsAre(RowOrigin{0, 0}, RowOrigin{0, 1}, RowOrigin{1, 0}, RowOrigin{1, 1}));
      EXPECT_THAT(rows.weights, ElementsAre(0.25f, 0.125f, 0.25f, 0.125f));
    }
  });
}

TEST(Dispatch, WritesIntoSymmetricOutWithoutMemoryOfItsOwnAndLeavesWhatSurroundsItAlone) {
  World::spawn(2, [](World& world) {
    ToEveryone shuffle(world, kHostThreads, {}, {.alignment = 3});
    const std::int64_t num_rows = shuffle.plan().num_rows();
    const Tensor whole = world.allocate(f32, num_rows + 2, kHidden), x = shuffle.token(0);
    std::ranges::fill(whole.as<float>(), -1.0f);
    Tensor middle = whole;
    middle.data = whole.row(1);
    middle.rows = num_rows;
    const std::size_t before = world.live_bytes();
    const Rows rows = shuffle.engine().dispatch(shuffle.plan(), x, {.out = middle}).wait();
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
    ToEveryone shuffle(world, kHostThreads, {.weights = true});
    std::vector<float> out(2 * kHidden);
    const Rows rows = shuffle.dispatch(1, {.out = borrow(out.data(), f32, 2, kHidden)}).wait();
    // Were the block of the weights free, it would be this one.
    std::ranges::fill(world.allocate(f32, 64, 64).as<float>(), -1.0f);
    EXPECT_THAT(rows.weights, ElementsAre(1.0f, 1.0f));
  });
}

TEST(Dispatch, IntoForeignMemoryKeepsNoBlock) {
  World::spawn(1, [](World& world) {
    ToEveryone shuffle(world);
    const Tensor x = shuffle.token(1);
    const std::size_t before = world.live_bytes();
    std::vector<float> out(kHidden);
    (void)shuffle.engine().dispatch(shuffle.plan(), x, {.out = borrow(out.data(), f32, 1, kHidden)}).wait();
    EXPECT_THAT(out, Each(ToEveryone::value(1, 0)));
    while (world.live_bytes() != before) std::this_thread::yield();  // or the test times out
  });
}

}  // namespace
}  // namespace shunt::test
