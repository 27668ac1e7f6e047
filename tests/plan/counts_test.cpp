#include "plan/counts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/plan_ranks.hpp"

namespace shunt {
namespace {

using ::testing::ElementsAre;

// One expert on rank 1; rank 0 brings three tokens for it, rank 1 two.
test::RandomCase one_expert(std::int64_t capacity) {
  return {Topology::single_node(2),
          ExpertMap::from_placement(1, {{}, {ExpertId(0)}}),
          {.capacity = capacity},
          1,
          {{{0, 0, 0}, {}}, {{0, 0}, {}}}};
}

TEST(Capacity, EarlierSourcesKeepFirst) {
  GlobalCounts counts;
  counts.num_ranks = 3;
  counts.num_physical = 2;
  counts.rows = {3, 1, 2, 1, 4, 1};
  clamp_rows(counts, 4);
  EXPECT_THAT(counts.rows, ElementsAre(3, 1, 1, 1, 0, 1));
}

TEST(Capacity, DropsLaterTokensOfASource) {
  const auto plans = test::plan_ranks(one_expert(2));
  EXPECT_EQ(plans[0]->targets_of(0).size(), 1u);
  EXPECT_EQ(plans[0]->targets_of(1).size(), 1u);
  EXPECT_TRUE(plans[0]->targets_of(2).empty());
  EXPECT_EQ(plans[0]->num_dropped, 1);
  EXPECT_EQ(plans[1]->num_dropped, 2);
  EXPECT_EQ(plans[1]->num_rows(), 2);
}

TEST(Capacity, CountsTokensAfterTheDrop) {
  const auto plans = test::plan_ranks(one_expert(4));
  EXPECT_EQ(plans[0]->traffic.routed_tokens, 4u);
  EXPECT_THAT(plans[0]->traffic.sent_rows, ElementsAre(0, 3));
  EXPECT_THAT(plans[1]->traffic.sent_rows, ElementsAre(0, 1));
}

// Expert 0 has a copy on each rank, expert 1 is on rank 1 only. The third token's row for expert 1 is dropped, but its
// row for expert 0 stays on rank 1, although without expert 1 its own rank would have been chosen.
TEST(Capacity, DropsAfterCopiesAreChosen) {
  const auto plans = test::plan_ranks({Topology::single_node(2),
                                       ExpertMap::from_placement(3, {{0, 2}, {0, 1}}),
                                       {.capacity = 2},
                                       2,
                                       {{{1, 2, 1, 2, 0, 1}, {}}, {{}, {}}}});
  const auto targets = plans[0]->targets_of(2);
  ASSERT_EQ(targets.size(), 1u);
  EXPECT_EQ(targets[0].rank, RankId(1));
  EXPECT_EQ(plans[0]->num_dropped, 1);
}

TEST(Capacity, NeverReachedDropsNothing) {
  const auto plans = test::plan_ranks(one_expert(5));
  EXPECT_EQ(plans[0]->num_dropped + plans[1]->num_dropped, 0);
  EXPECT_EQ(plans[1]->num_rows(), 5);
}

}  // namespace
}  // namespace shunt
