#include "placement/score.hpp"

#include <gtest/gtest.h>

#include "placement/routings.hpp"
#include "shunt/expert_map.hpp"

namespace shunt {
namespace {

using placement::MapFigures;
using placement::RoutedTokens;
using placement::ShuffleCost;

TEST(Score, CountsRanksPerTokenAndLoad) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const RoutedTokens tokens = test::random_tokens(seed, 12, 3, 100, 3);
    const ExpertMap map = ExpertMap::contiguous(12, 3);
    const MapFigures figures = score(tokens, map, Topology::single_node(3), {});
    EXPECT_DOUBLE_EQ(figures.c_t, static_cast<double>(test::touched_ranks(tokens, test::ranks_of(map))) / 100);
    EXPECT_DOUBLE_EQ(figures.load, test::busiest_load(tokens, test::ranks_of(map), 3));
    EXPECT_DOUBLE_EQ(figures.c_t_node, 1);
  }
}

/// Four ranks on two nodes, an expert each; token by token.
RoutedTokens some_tokens() {
  RoutedTokens tokens{4, 2, {}, {}};
  const auto add = [&](int source, std::uint16_t a, std::uint16_t b) {
    tokens.sources.push_back(source);
    tokens.experts.insert(tokens.experts.end(), {a, b});
  };
  add(0, 0, 1);                       // stays on its node: rank 0 sends one row to rank 1
  add(1, 2, 3);                       // crosses once, for two ranks of node 1
  add(2, 2, RoutedTokens::kDropped);  // stays on its rank
  add(3, 0, 2);                       // crosses to node 0, and goes from rank 3 to rank 2
  return tokens;
}

TEST(Score, EstimatesTheBusiestLink) {
  const Topology topology = Topology::virtual_nodes(4, 2);
  const ExpertMap map = ExpertMap::contiguous(4, 4);
  const auto time_of = [&](const ShuffleCost& cost) { return score(some_tokens(), map, topology, cost).estimated_ms; };
  // Each node sends one row to the other.
  EXPECT_DOUBLE_EQ(time_of({.near_s_per_row = 0, .far_s_per_row = 1, .latency_s = 0, .tokens_per_rank = 1}), 2e3);
  // Rank 2 receives a row from rank 3, and half of the far one: the forwarder is either rank 2 or 3, equally often.
  EXPECT_DOUBLE_EQ(time_of({.near_s_per_row = 1, .far_s_per_row = 0, .latency_s = 0, .tokens_per_rank = 1}), 3e3);
  // Every source brings 10 tokens instead of one.
  EXPECT_DOUBLE_EQ(time_of({.near_s_per_row = 1, .far_s_per_row = 0, .latency_s = 0, .tokens_per_rank = 10}), 30e3);
  EXPECT_DOUBLE_EQ(time_of({.near_s_per_row = 0, .far_s_per_row = 0, .latency_s = 2, .tokens_per_rank = 1}), 4e3);
}

TEST(Score, CountsCopiesAsThePlannerChoosesThem) {
  const Topology topology = Topology::single_node(2);
  RoutedTokens tokens{3, 2, {0, 1, 2, 1}, {0, 1}};
  // Expert 1 has a copy on both ranks: each token uses the one beside its other expert.
  const ExpertMap map = ExpertMap::from_placement(3, {{0, 1}, {1, 2}});
  EXPECT_DOUBLE_EQ(score(tokens, map, topology, {}).c_t, 1);
  EXPECT_DOUBLE_EQ(score(tokens, ExpertMap::from_placement(3, {{0, 1}, {2}}), topology, {}).c_t, 1.5);
}

}  // namespace
}  // namespace shunt
