#include "placement/baselines.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "placement/routings.hpp"

namespace shunt {
namespace {

using placement::RoutedTokens;

TEST(OccultGreedy, FollowsThePaperStepByStep) {
  // Pairs 4-5 (strongest), 0-1, 2-3; expert 0 also works with 4, so 2 is least related to the first rank.
  std::vector<std::int64_t> together(36);
  const auto set = [&](std::size_t a, std::size_t b, std::int64_t count) {
    together[a * 6 + b] = together[b * 6 + a] = count;
  };
  set(4, 5, 9);
  set(0, 1, 7);
  set(2, 3, 8);
  set(0, 4, 2);
  set(1, 5, 1);
  EXPECT_EQ(placement::occult_greedy(together, 6, 3), (std::vector<std::int32_t>{2, 2, 1, 1, 0, 0}));
}

TEST(OccultRepaired, MeetsTheLimitOrReturnsNone) {
  int met = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const RoutedTokens tokens = test::random_tokens(seed, 16, 4, 300, 4);
    const auto rows = tokens.rows_per_expert();
    const double all = static_cast<double>(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
    std::vector<double> load;
    for (const std::int64_t each : rows) load.push_back(static_cast<double>(each) / all);
    const placement::PartitionProblem problem{tokens, load, {0, 0, 0, 0}, {}, 1.1 / 4};
    const auto greedy = placement::occult_greedy(tokens.co_activation(), 16, 4);
    const auto repaired = occult_repaired(problem, greedy);
    if (!repaired) continue;
    ++met;
    EXPECT_LE(test::busiest_load(tokens, *repaired, 4), 1.1 + 1e-9);
  }
  EXPECT_GT(met, 20);
}

TEST(LoadOnly, SpreadsLoadAndCopiesTheHeaviest) {
  const Topology topology = Topology::single_node(2);
  // One expert has half of the rows: without copies, its rank has 60 %.
  const std::vector<std::int64_t> rows = {50, 10, 10, 10, 10, 10};
  const ExpertMap plain = placement::load_only(rows, topology, 6);
  EXPECT_EQ(plain.num_physical(), 6);
  EXPECT_EQ(plain.num_local(RankId(0)), 3);
  const ExpertMap copied = placement::load_only(rows, topology, 8);
  EXPECT_EQ(copied.num_physical(), 8);
  EXPECT_EQ(copied.copies(ExpertId(0)).size(), 2u);
  for (std::int32_t rank = 0; rank < 2; ++rank) EXPECT_EQ(copied.num_local(RankId(rank)), 4);
}

TEST(LoadOnly, KeepsRanksWithinOneExpertOfEachOther) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    placement::Random random(seed);
    const auto nodes = static_cast<std::int32_t>(1 + random.below(4)),
               per_node = static_cast<std::int32_t>(1 + random.below(4));
    const Topology topology = Topology::virtual_nodes(nodes * per_node, nodes);
    std::vector<std::int64_t> rows(1 + random.below(40));
    for (std::int64_t& each : rows) each = static_cast<std::int64_t>(random.below(1000));
    const auto experts = static_cast<std::int32_t>(rows.size());
    const auto places = experts + static_cast<std::int32_t>(random.below(rows.size() + 1));
    if (places > experts / nodes * nodes * per_node) continue;  // a node's experts can't fill its places with copies
    const ExpertMap map = placement::load_only(rows, topology, places);
    std::int32_t least = experts * 2, most = 0;
    for (std::int32_t rank = 0; rank < map.num_ranks(); ++rank) {
      least = std::min(least, map.num_local(RankId(rank)));
      most = std::max(most, map.num_local(RankId(rank)));
    }
    EXPECT_LE(most - least, 1) << "seed " << seed;
    EXPECT_EQ(map.num_physical(), places) << "seed " << seed;
  }
}

TEST(Balance, NeverRaisesTheBusiestLoad) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const RoutedTokens tokens = test::random_tokens(seed, 20, 4, 200, 5);
    const auto before = test::ranks_of(ExpertMap::contiguous(20, 5));
    const auto after = placement::balance(tokens.rows_per_expert(), before, 5);
    EXPECT_LE(test::busiest_load(tokens, after, 5), test::busiest_load(tokens, before, 5));
  }
}

}  // namespace
}  // namespace shunt
