#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shunt/plan.hpp"
#include "support/plan_ranks.hpp"

namespace shunt {
namespace {

using ::testing::ElementsAre;

// Rank 0 holds experts 0 and 1, rank 1 holds 2 and 3.
Plan plan_of_rank_1(std::int32_t alignment) {
  const test::RandomCase all{Topology::single_node(2),
                             ExpertMap::contiguous(4, 2),
                             {.layout = Layout::token_unique, .alignment = alignment},
                             2,
                             {{{3, 2, 0, 1}, {0.5f, 0.25f, 1, 1}}, {{3, 0}, {4, 8}}}};
  return Plan(test::plan_ranks(all)[1]);
}

TEST(TokenUnique, HasOneRowPerTokenAndRank) {
  const Plan plan = plan_of_rank_1(1);
  EXPECT_EQ(plan.num_rows(), 2);
  EXPECT_EQ(plan.num_expert_rows(), 3);
}

TEST(TokenUnique, MapsAreInverseToEachOther) {
  const Plan plan = plan_of_rank_1(1);
  // Expert rows: expert 2 of (rank 0, token 0), then expert 3 of the same and of (rank 1, token 0).
  EXPECT_THAT(plan.unique_of_expert_row(), ElementsAre(0, 0, 1));
  EXPECT_THAT(plan.expert_rows_of_unique(), ElementsAre(0, 1, 2, -1));
}

TEST(TokenUnique, RowsHaveTheirExpertsAndWeights) {
  const Plan plan = plan_of_rank_1(1);
  EXPECT_THAT(plan.unique_experts(), ElementsAre(0, 1, 1, -1));
  EXPECT_THAT(plan.unique_weights(), ElementsAre(0.25f, 0.5f, 4.0f, 0.0f));
}

TEST(TokenUnique, PaddingCopiesNoRow) {
  EXPECT_THAT(plan_of_rank_1(2).unique_of_expert_row(), ElementsAre(0, -1, 0, 1));
}

}  // namespace
}  // namespace shunt
