#include "placement/drift.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/cluster.hpp"
#include "placement/random.hpp"
#include "placement/routings.hpp"
#include "shunt/error.hpp"

namespace shunt {
namespace {

using placement::DriftOptions;
using placement::DriftStep;
using placement::Goal;
using placement::Method;
using placement::RoutedTokens;

DriftOptions two_nodes() {
  DriftOptions options;
  options.place = test::on_ranks(2, 4, Goal::time);
  const Cluster cluster = Cluster::load("h100");
  options.near_bytes_per_s = cluster.near_bytes_per_s;
  options.far_bytes_per_s = cluster.far_bytes_per_s;
  return options;
}

TEST(Drift, GainsNearlyWhatPlacingAnewWouldWithAThirdOfItsMoves) {
  double gain = 0, fresh_gain = 0;
  std::int64_t moves = 0, fresh_moves = 0;
  const DriftOptions options = two_nodes();
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const RoutedTokens tokens = test::generated("drift", options.place, 64, 40'000, seed);
    const auto map = place(Method::shunt, tokens.range(0, 20'000), options.place).map;
    const DriftStep step = follow(tokens.range(20'000, 40'000), map, options);
    EXPECT_EQ(step.moves, placement::moves_between(map, step.map));
    gain += step.stale_ms - step.after_ms;
    moves += std::ssize(step.moves);
    // Where little is to be gained nothing moves, so that is no measure.
    if (step.moves.empty()) continue;
    fresh_gain += step.stale_ms - step.fresh_ms;
    fresh_moves += step.fresh_moves;
  }
  EXPECT_GE(gain, 0.9 * fresh_gain);
  EXPECT_LE(3 * moves, fresh_moves);
  EXPECT_GT(moves, 0);
}

TEST(Drift, MovesNothingWhileNothingChanges) {
  DriftOptions options = two_nodes();
  options.place.effort.starts = 2;
  options.place.effort.steps = 150;
  const RoutedTokens tokens = test::generated("topics", options.place, 64, 20'000 + 50 * 2048, 3);
  const auto map = place(Method::shunt, tokens.range(0, 20'000), options.place).map;
  for (std::size_t window = 0; window < 50; ++window) {
    const std::size_t begin = 20'000 + window * 2048;
    EXPECT_EQ(follow(tokens.range(begin, begin + 2048), map, options).moves.size(), 0u) << "window " << window;
  }
}

TEST(Drift, MovesNothingThatCostsMoreThanItGains) {
  DriftOptions options = two_nodes();
  options.horizon_steps = 1e-3;
  const RoutedTokens tokens = test::generated("drift", options.place, 64, 20'000, 1);
  const auto map = place(Method::shunt, tokens.range(0, 10'000), options.place).map;
  EXPECT_TRUE(follow(tokens.range(10'000, 20'000), map, options).moves.empty());
}

TEST(Drift, RelabelsForFewestMoves) {
  const Topology topology = Topology::virtual_nodes(4, 2);
  placement::Random random(4);
  const auto random_map = [&] {
    std::vector<std::int32_t> experts(8);
    std::iota(experts.begin(), experts.end(), 0);
    random.shuffle(experts);
    std::vector<std::vector<ExpertId>> placement(4);
    for (std::size_t i = 0; i < 8; ++i) placement[i / 2].emplace_back(experts[i]);
    return ExpertMap::from_placement(8, placement);
  };
  for (int round = 0; round < 50; ++round) {
    const ExpertMap current = random_map(), fresh = random_map();
    const auto moves = placement::moves_between(current, placement::relabelled(fresh, current, topology)).size();
    // All names that keep nodes together: nodes swapped or not, ranks of each node swapped or not.
    std::size_t least = 8;
    for (int names = 0; names < 8; ++names) {
      std::vector<RankId> order = {RankId(0), RankId(1), RankId(2), RankId(3)};
      if (names & 1) std::swap(order[0], order[1]);
      if (names & 2) std::swap(order[2], order[3]);
      if (names & 4) std::rotate(order.begin(), order.begin() + 2, order.end());
      least = std::min(least, placement::moves_between(current, fresh.restricted_to(order)).size());
    }
    EXPECT_EQ(moves, least);
  }
}

TEST(Drift, RefusesMapsWithCopies) {
  const DriftOptions options = two_nodes();
  const RoutedTokens tokens = test::random_tokens(1, 8, 2, 100, 8);
  const ExpertMap copies = ExpertMap::from_placement(8, {{0, 1}, {1}, {2}, {3}, {4}, {5}, {6}, {7}});
  EXPECT_THROW((void)follow(tokens, copies, options), Error);
}

}  // namespace
}  // namespace shunt
