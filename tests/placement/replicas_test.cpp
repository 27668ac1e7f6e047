#include "placement/replica_search.hpp"

#include <gtest/gtest.h>

#include "placement/place.hpp"
#include "placement/routings.hpp"

namespace shunt {
namespace {

using placement::Goal;
using placement::Method;
using placement::PlaceOptions;
using placement::RoutedTokens;

PlaceOptions with_copies(double per_cent, Goal goal) {
  PlaceOptions options = test::on_ranks(goal == Goal::time ? 2 : 1, goal == Goal::time ? 2 : 4, goal);
  options.replicas = per_cent;
  options.load_limit = 1.10;
  options.effort.replica_proposals = 2000;
  options.effort.sample = 4000;
  return options;
}

TEST(Replicas, LowerTheObjective) {
  const RoutedTokens tokens = test::real_layer(4, 4);
  const auto figures_with = [&](double per_cent, Goal goal) {
    const PlaceOptions options = with_copies(per_cent, goal);
    const auto placed = place(Method::shunt, tokens, options);
    EXPECT_EQ(placed.map.num_physical(), options.places(64));
    const auto figures = score(tokens, placed.map, options.topology(), options.cost);
    EXPECT_LE(figures.load, 1.10);
    for (std::int32_t rank = 0; rank < 4; ++rank) EXPECT_EQ(placed.map.num_local(RankId(rank)), options.places(64) / 4);
    return figures;
  };
  const auto none = figures_with(0, Goal::c_t), some = figures_with(12.5, Goal::c_t),
             more = figures_with(25, Goal::c_t);
  EXPECT_LT(some.c_t, 0.97 * none.c_t);
  EXPECT_LT(more.c_t, 0.97 * some.c_t);
  EXPECT_LT(figures_with(12.5, Goal::time).estimated_ms, figures_with(0, Goal::time).estimated_ms);
}

TEST(Replicas, TakeLoadFromWhatOneRankCannotCarry) {
  // One expert has a third of all rows: without copies, some rank has at least 4/3 of the mean.
  RoutedTokens tokens{8, 1, {}, {}};
  for (int i = 0; i < 2100; ++i) {
    tokens.experts.push_back(static_cast<std::uint16_t>(i % 21 < 7 ? 0 : 1 + i % 7));
    tokens.sources.push_back(i % 4);
  }
  PlaceOptions options = with_copies(50, Goal::c_t);
  options.load_limit = 1.2;
  const auto map = place(Method::shunt, tokens, options).map;
  EXPECT_GT(map.copies(ExpertId(0)).size(), 1u);
  EXPECT_LE(score(tokens, map, options.topology(), options.cost).load, 1.2);
}

TEST(Replicas, AreAddedWhereTheySpareTokensARank) {
  // Half of the tokens touch rank 1 only because of expert 2; their experts on rank 0 are two.
  RoutedTokens tokens{4, 3, {}, {}};
  for (int i = 0; i < 100; ++i) {
    if (i % 2 == 0)
      tokens.experts.insert(tokens.experts.end(), {0, 1, 2});
    else
      tokens.experts.insert(tokens.experts.end(), {3, 2, RoutedTokens::kDropped});
    tokens.sources.push_back(i % 2);
  }
  const auto holdings = placement::add_copies(tokens, {{0, 1}, {2, 3}}, 5);
  EXPECT_EQ(holdings, (placement::Holdings{{0, 1, 2}, {2, 3}}));
}

TEST(Replicas, WorkBeyondSixtyFourRanks) {
  PlaceOptions options = test::on_ranks(10, 7, Goal::time);
  options.replicas = 30;
  options.effort = {.sample = 500, .starts = 2, .steps = 20, .replica_proposals = 200, .seed = 1};
  const RoutedTokens tokens = test::random_tokens(3, 100, 4, 2000, 70);
  const auto map = place(Method::shunt, tokens, options).map;
  EXPECT_EQ(map.num_physical(), 130);
  for (std::int32_t rank = 0; rank < 70; ++rank) {
    EXPECT_GE(map.num_local(RankId(rank)), 1);
    EXPECT_LE(map.num_local(RankId(rank)), 2);
  }
}

}  // namespace
}  // namespace shunt
