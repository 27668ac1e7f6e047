#include "shunt/traffic.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shunt/error.hpp"
#include "shunt/plan.hpp"
#include "support/plan_ranks.hpp"

namespace shunt {
namespace {

using ::testing::ElementsAre;

constexpr std::size_t kRowBytes = 100;

// Four ranks on two nodes, two experts each. Rank 0 has one token for experts 0 and 1 (rank 0), 4 (rank 2) and 6, 7
// (rank 3), and one for expert 2 (rank 1); the others have none.
Plan plan(Layout layout) {
  const test::RandomCase all{Topology::virtual_nodes(4, 2),
                             ExpertMap::contiguous(8, 4),
                             {.layout = layout, .max_tokens = 2},
                             5,
                             {{{0, 1, 4, 6, 7, 2, -1, -1, -1, -1}, {}}, {}, {}, {}}};
  return Plan(test::plan_ranks(all)[0]);
}

TEST(Traffic, CountsARowPerExpertInExpertMajor) {
  const Traffic traffic = plan(Layout::expert_major).traffic(kRowBytes);
  EXPECT_THAT(traffic.sent_bytes, ElementsAre(2 * kRowBytes, kRowBytes, kRowBytes, 2 * kRowBytes));
  EXPECT_EQ(traffic.total_bytes, 6 * kRowBytes);
  EXPECT_EQ(traffic.between_ranks_bytes, 4 * kRowBytes);
}

TEST(Traffic, CountsARowPerRankInTokenUnique) {
  const Traffic traffic = plan(Layout::token_unique).traffic(kRowBytes);
  EXPECT_THAT(traffic.sent_bytes, ElementsAre(kRowBytes, kRowBytes, kRowBytes, kRowBytes));
  EXPECT_EQ(traffic.total_bytes, 4 * kRowBytes);
}

TEST(Traffic, SendsEachTokenOncePerNode) {
  EXPECT_EQ(plan(Layout::expert_major).traffic(kRowBytes).between_nodes_bytes, kRowBytes);
}

TEST(Traffic, AveragesRanksOverRoutedTokens) {
  EXPECT_DOUBLE_EQ(plan(Layout::expert_major).traffic(kRowBytes).mean_ranks_per_token, (3 + 1) / 2.0);
}

TEST(Traffic, OfNoTokensIsZero) {
  const test::RandomCase none{Topology::single_node(1), ExpertMap::contiguous(1, 1), {}, 1, {{}}};
  const Traffic traffic = Plan(test::plan_ranks(none)[0]).traffic(kRowBytes);
  EXPECT_EQ(traffic.total_bytes, 0u);
  EXPECT_EQ(traffic.mean_ranks_per_token, 0.0);
}

TEST(Traffic, IsUnknownInPadded) { EXPECT_THROW((void)plan(Layout::padded).traffic(kRowBytes), Error); }

}  // namespace
}  // namespace shunt
