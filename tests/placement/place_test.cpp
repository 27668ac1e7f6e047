#include "placement/place.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "placement/baselines.hpp"
#include "placement/routings.hpp"
#include "shunt/error.hpp"

namespace shunt {
namespace {

using placement::Goal;
using placement::Method;
using placement::PlaceOptions;
using placement::RoutedTokens;

/// Calls use(rank_of) for all assignments whose counts differ by at most one.
template <class Use>
void for_all_partitions(std::size_t experts, std::size_t ranks, const Use& use) {
  std::vector<std::int32_t> rank_of(experts);
  std::vector<std::size_t> held(ranks);
  const std::size_t most = (experts + ranks - 1) / ranks, least = experts / ranks;
  const auto recurse = [&](const auto& self, std::size_t expert) -> void {
    if (expert == experts) {
      if (*std::min_element(held.begin(), held.end()) >= least) use(rank_of);
      return;
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (held[rank] < most) {
        rank_of[expert] = static_cast<std::int32_t>(rank);
        ++held[rank];
        self(self, expert + 1);
        --held[rank];
      }
      if (held[rank] == 0) break;  // ranks are equivalent: the first empty one represents all
    }
  };
  recurse(recurse, 0);
}

/// The minimum of C_T times tokens over all maps within the limit.
std::int64_t exhaustive(const RoutedTokens& tokens, std::size_t ranks, double limit) {
  std::vector<std::int64_t> rows = tokens.rows_per_expert();
  std::int64_t all = 0;
  for (const std::int64_t each : rows) all += each;
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> load(ranks);
  for_all_partitions(rows.size(), ranks, [&](const std::vector<std::int32_t>& rank_of) {
    std::fill(load.begin(), load.end(), 0);
    for (std::size_t expert = 0; expert < rows.size(); ++expert)
      load[static_cast<std::size_t>(rank_of[expert])] += rows[expert];
    const auto most = static_cast<double>(*std::max_element(load.begin(), load.end()));
    if (most * static_cast<double>(ranks) > limit * static_cast<double>(all) * (1 + 1e-9)) return;
    std::int64_t sum = 0;
    for (std::size_t token = 0; token < tokens.num_tokens(); ++token) {
      unsigned touched = 0;
      for (const std::uint16_t expert : tokens.experts_of(token)) touched |= 1u << rank_of[expert];
      sum += std::popcount(touched);
    }
    best = std::min(best, sum);
  });
  return best;
}

class SmallCases : public testing::TestWithParam<std::tuple<int, int, int, int>> {};

TEST_P(SmallCases, AreAsGoodAsExhaustiveSearch) {
  const auto [experts, ranks, topk, seeds] = GetParam();
  for (int seed = 1; seed <= seeds; ++seed) {
    const RoutedTokens tokens = test::random_tokens(static_cast<std::uint64_t>(seed), experts, topk, 60, ranks);
    const auto placed = place(Method::shunt, tokens, test::on_ranks(1, ranks, Goal::c_t));
    const auto rank_of = test::ranks_of(placed.map);
    EXPECT_LE(test::busiest_load(tokens, rank_of, ranks), *placed.load_limit * (1 + 1e-9));
    EXPECT_EQ(test::touched_ranks(tokens, rank_of),
              exhaustive(tokens, static_cast<std::size_t>(ranks), *placed.load_limit))
        << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Placement, SmallCases,
                         testing::Values(std::tuple(12, 3, 3, 200), std::tuple(10, 3, 2, 50), std::tuple(9, 4, 3, 50),
                                         std::tuple(8, 2, 4, 50), std::tuple(5, 7, 2, 20)));

TEST(Place, FindsDisjointClustersExactly) {
  for (const std::int32_t ranks : {4, 8})
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      const PlaceOptions options = test::on_ranks(1, ranks, Goal::c_t);
      const RoutedTokens tokens = test::generated("clustered", options, 64, 4000, seed);
      const auto map = place(Method::shunt, tokens, options).map;
      EXPECT_EQ(test::touched_ranks(tokens, test::ranks_of(map)), 4000) << ranks << " ranks, seed " << seed;
    }
}

TEST(Place, BeatsTheRepairedGreedyOnTopics) {
  struct Case {
    std::int32_t experts, ranks;
    int seeds;
  };
  // docs/performance.md has figures over 50 seeds each.
  for (const Case& each : {Case{64, 4, 6}, Case{64, 8, 6}, Case{256, 64, 1}}) {
    const PlaceOptions options = test::on_ranks(1, each.ranks, Goal::c_t);
    double ours = 0, theirs = 0;
    for (int seed = 1; seed <= each.seeds; ++seed) {
      const RoutedTokens tokens =
          test::generated("topics", options, each.experts, 10'000, static_cast<std::uint64_t>(seed));
      const auto c_t = [&](Method method) {
        return score(tokens, place(method, tokens, options).map, options.topology(), options.cost).c_t;
      };
      const double shunt = c_t(Method::shunt), repaired = c_t(Method::occult_repaired);
      EXPECT_LE(shunt, repaired) << each.experts << " experts, " << each.ranks << " ranks, seed " << seed;
      ours += shunt;
      theirs += repaired;
    }
    EXPECT_LE(ours, 0.975 * theirs) << each.experts << " experts, " << each.ranks << " ranks";
  }
}

TEST(Place, KeepsToItsLoadLimitInEveryLayerOfARealTrace) {
  for (const std::int32_t layer : {0, 4, 7}) {
    const PlaceOptions options = test::on_ranks(1, 4, Goal::c_t);
    const RoutedTokens tokens = test::real_layer(layer, 4);
    const auto c_t = [&](Method method) {
      const auto placed = place(method, tokens, options);
      const auto figures = score(tokens, placed.map, options.topology(), options.cost);
      EXPECT_LE(figures.load, placed.load_limit.value_or(2) * (1 + 1e-9));
      return figures.c_t;
    };
    const double shunt = c_t(Method::shunt);
    EXPECT_LE(shunt, 0.986 * c_t(Method::occult_repaired)) << "layer " << layer;
    EXPECT_LE(shunt, 0.9 * c_t(Method::contiguous)) << "layer " << layer;
  }
}

TEST(Place, IsFasterThanEveryOtherMethodOnTwoNodes) {
  for (const std::int32_t layer : {2, 7}) {
    const PlaceOptions options = test::on_ranks(2, 4, Goal::time);
    const RoutedTokens tokens = test::real_layer(layer, 8);
    const auto time = [&](Method method) {
      return score(tokens, place(method, tokens, options).map, options.topology(), options.cost).estimated_ms;
    };
    const double shunt = time(Method::shunt);
    for (const Method method : placement::kMethods)
      EXPECT_TRUE(method == Method::shunt || shunt < time(method)) << to_string(method) << ", layer " << layer;
  }
}

TEST(Place, SpreadsExpertsEvenlyWhateverTheirNumber) {
  struct Case {
    std::int32_t experts, nodes, ranks_per_node;
  };
  for (const Case& each : {Case{60, 1, 7}, Case{61, 2, 4}, Case{66, 4, 4}, Case{5, 2, 4}, Case{1, 1, 1}})
    for (const Goal goal : {Goal::time, Goal::c_t}) {
      const PlaceOptions options = test::on_ranks(each.nodes, each.ranks_per_node, goal);
      const std::int32_t ranks = each.nodes * each.ranks_per_node;
      const RoutedTokens tokens = test::random_tokens(1, each.experts, std::min(each.experts, 4), 500, ranks, true);
      const auto map = place(Method::shunt, tokens, options).map;
      for (std::int32_t rank = 0; rank < ranks; ++rank) {
        EXPECT_GE(map.num_local(RankId(rank)), each.experts / ranks);
        EXPECT_LE(map.num_local(RankId(rank)), (each.experts + ranks - 1) / ranks);
      }
    }
}

TEST(Place, GivesTheSameMapEveryTime) {
  const PlaceOptions options = test::on_ranks(2, 2, Goal::time);
  const RoutedTokens tokens = test::generated("topics", options, 32, 3000, 1);
  // The result of gcc 12 and clang 14; every compiler and machine must find the same.
  EXPECT_EQ(place(Method::shunt, tokens, options).map.hash(), 10844621487792605415u);
  PlaceOptions with_copies = options;
  with_copies.replicas = 25;
  with_copies.load_limit = 1.2;
  EXPECT_EQ(place(Method::shunt, tokens, with_copies).map.hash(), 8710842981496455272u);
}

TEST(Place, NamesTheLeastLoadWhereALimitCannotBeMet) {
  // One expert has 238 of 700 rows, each other 66, and every rank two experts: the busiest has 304 for a mean of 175.
  RoutedTokens tokens{8, 1, {}, {}};
  for (int i = 0; i < 700; ++i) {
    tokens.experts.push_back(static_cast<std::uint16_t>(i % 21 < 7 ? 0 : 1 + i % 7));
    tokens.sources.push_back(i % 4);
  }
  PlaceOptions options = test::on_ranks(1, 4, Goal::c_t);
  options.load_limit = 1.2;
  try {
    (void)place(Method::shunt, tokens, options);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    const std::string text = error.what();
    EXPECT_NE(text.find("1.2"), std::string::npos) << text;
    EXPECT_NE(text.find("the least found is 1.7372"), std::string::npos) << text;
  }
  options.load_limit = 1.7372;
  EXPECT_NO_THROW((void)place(Method::shunt, tokens, options));
}

TEST(Place, FindsAMapWhereTheLimitIsJustWhatBalancingReaches) {
  const RoutedTokens tokens = test::random_tokens(3, 12, 2, 90, 4);
  PlaceOptions options = test::on_ranks(1, 4, Goal::c_t);
  const auto least = [&] {
    const auto rank_of = placement::balance(tokens.rows_per_expert(), test::ranks_of(ExpertMap::contiguous(12, 4)), 4);
    return test::busiest_load(tokens, rank_of, 4);
  }();
  for (const double limit : {least, least - 1e-10, least + 1e-10}) {
    options.load_limit = limit;
    EXPECT_NO_THROW((void)place(Method::shunt, tokens, options)) << limit - least;
  }
}

}  // namespace
}  // namespace shunt
