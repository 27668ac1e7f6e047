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

DriftStep follow(const RoutedTokens& window, const ExpertMap& map, const DriftOptions& options) {
  const placement::DriftChoices choices = placement::drift_choices(window, map, options);
  return placement::choose(std::span(&choices, 1), options).front();
}

TEST(Drift, GainsNearlyWhatPlacingAnewWouldWithAThirdOfItsMoves) {
  const DriftOptions options = two_nodes();
  std::vector<ExpertMap> maps;
  std::vector<placement::DriftChoices> choices;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const RoutedTokens tokens = test::generated("drift", options.place, 64, 40'000, seed);
    maps.push_back(place(Method::shunt, tokens.range(0, 20'000), options.place).map);
    choices.push_back(placement::drift_choices(tokens.range(20'000, 40'000), maps.back(), options));
  }
  const std::vector<DriftStep> steps = placement::choose(choices, options);
  double gain = 0, fresh_gain = 0;
  std::int64_t moves = 0, fresh_moves = 0;
  for (std::size_t layer = 0; layer < steps.size(); ++layer) {
    const DriftStep& step = steps[layer];
    EXPECT_EQ(step.moves, placement::moves_between(maps[layer], step.map));
    gain += step.stale_ms - step.after_ms;
    moves += std::ssize(step.moves);
    fresh_gain += step.stale_ms - step.fresh_ms;
    fresh_moves += step.fresh_moves;
  }
  EXPECT_GE(gain, 0.9 * fresh_gain);
  EXPECT_LE(3 * moves, fresh_moves);
  EXPECT_GT(moves, 0);
}

TEST(Drift, DistributesMovesAmongLayersByWorth) {
  DriftOptions options;
  const ExpertMap map = ExpertMap::contiguous(4, 2);
  placement::Random random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<placement::DriftChoices> layers(3, {{map}, {}});
    for (placement::DriftChoices& layer : layers) {
      layer.stay.fresh_moves = static_cast<std::int64_t>(random.below(20));
      for (std::size_t i = random.below(4); i > 0; --i) {
        DriftStep step = layer.stay;
        step.moves.resize(1 + random.below(8), {ExpertId(0), RankId(0), RankId(1)});
        step.worth_ms = 1 + random.unit();
        layer.steps.push_back(step);
      }
    }
    const auto worth = [](const std::vector<DriftStep>& steps) {
      return std::accumulate(steps.begin(), steps.end(), 0.0,
                             [](double sum, auto& step) { return sum + step.worth_ms; });
    };
    const auto num_moves = [](const std::vector<DriftStep>& steps) {
      return std::accumulate(steps.begin(), steps.end(), std::int64_t{0},
                             [](std::int64_t sum, auto& step) { return sum + std::ssize(step.moves); });
    };
    std::int64_t fresh_moves = 0;
    for (const auto& layer : layers) fresh_moves += layer.steps.empty() ? 0 : layer.stay.fresh_moves;
    double best = 0;
    std::vector<std::vector<DriftStep>> all(3);
    for (std::size_t i = 0; i < 3; ++i) {
      all[i] = layers[i].steps;
      all[i].push_back(layers[i].stay);
    }
    for (const DriftStep& a : all[0])
      for (const DriftStep& b : all[1])
        for (const DriftStep& c : all[2])
          if (3 * num_moves({a, b, c}) <= fresh_moves) best = std::max(best, worth({a, b, c}));
    const std::vector<DriftStep> steps = placement::choose(layers, options);
    ASSERT_LE(3 * num_moves(steps), fresh_moves);
    ASSERT_DOUBLE_EQ(worth(steps), best) << "round " << round;
  }
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

TEST(Drift, JudgesLongWindowsBySendersFromAllRanks) {
  const DriftOptions options = two_nodes();
  const RoutedTokens tokens = test::generated("topics", options.place, 64, 65'536, 2);
  const auto map = ExpertMap::contiguous(64, 8);
  const double whole = score(tokens, map, options.place.topology(), options.place.cost).estimated_ms;
  EXPECT_NEAR(placement::drift_choices(tokens, map, options).stay.stale_ms, whole, 0.03 * whole);
}

TEST(Drift, KeepsARequestedLimit) {
  DriftOptions options = two_nodes();
  options.place.load_limit = 1.1;
  const RoutedTokens tokens = test::generated("drift", options.place, 64, 40'000, 1);
  const auto map = place(Method::shunt, tokens.range(0, 20'000), options.place).map;
  const RoutedTokens window = tokens.range(20'000, 40'000);
  const DriftStep step = follow(window, map, options);
  EXPECT_GT(step.moves.size(), 0u);
  EXPECT_LE(score(window, step.map, options.place.topology(), options.place.cost).load, 1.1);
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
    // All renumberings that keep nodes together: nodes swapped or not, ranks of each node swapped or not.
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
  EXPECT_THROW((void)placement::drift_choices(tokens, copies, options), Error);
}

}  // namespace
}  // namespace shunt
