#include "placement/generate.hpp"

#include <gtest/gtest.h>

#include <set>

#include "placement/routings.hpp"
#include "shunt/error.hpp"

namespace shunt {
namespace {

using placement::GenerateOptions;
using placement::make_generator;
using placement::RoutedTokens;

TEST(Generate, DrawsDifferentExpertsForEveryKind) {
  for (const char* kind : {"uniform", "zipf", "clustered", "topics", "drift"})
    for (const std::int32_t experts : {8, 9, 64, 256}) {
      const RoutedTokens tokens = test::generated(kind, test::on_ranks(1, 4, placement::Goal::c_t), experts, 500, 3);
      for (std::size_t token = 0; token < tokens.num_tokens(); ++token) {
        const auto chosen = tokens.experts_of(token);
        const std::set<std::uint16_t> distinct(chosen.begin(), chosen.end());
        ASSERT_EQ(distinct.size(), 8u) << kind;
        ASSERT_LT(*distinct.rbegin(), experts) << kind;
      }
    }
}

TEST(Generate, GivesTheSameTokensForTheSameSeedAndLayer) {
  const auto draw = [](std::uint64_t seed, std::int32_t layer) {
    GenerateOptions options;
    options.seed = seed;
    const auto generator = make_generator("topics", options, layer);
    std::vector<std::int32_t> all(8 * 50);
    for (std::size_t i = 0; i < all.size(); i += 8) generator->draw(std::span(all).subspan(i, 8));
    return all;
  };
  EXPECT_EQ(draw(1, 0), draw(1, 0));
  EXPECT_NE(draw(1, 0), draw(1, 1));
  EXPECT_NE(draw(1, 0), draw(2, 0));
}

TEST(Generate, DriftsAfterHalfOfTheTokens) {
  const RoutedTokens tokens = test::generated("drift", test::on_ranks(1, 4, placement::Goal::c_t), 64, 40'000, 5);
  const auto distance = [&](std::size_t a, std::size_t b) {
    const auto before = tokens.range(a, a + 10'000).rows_per_expert(),
               after = tokens.range(b, b + 10'000).rows_per_expert();
    std::int64_t sum = 0;
    for (std::size_t expert = 0; expert < before.size(); ++expert) sum += std::abs(before[expert] - after[expert]);
    return sum;
  };
  EXPECT_GT(distance(10'000, 20'000), 5 * distance(0, 10'000));
  EXPECT_GT(distance(10'000, 20'000), 5 * distance(20'000, 30'000));
}

TEST(Generate, RefusesInvalidOptions) {
  EXPECT_THROW((void)make_generator("gaussian", {}, 0), Error);
  GenerateOptions options;
  options.topk = 65;
  EXPECT_THROW((void)make_generator("uniform", options, 0), Error);
  options = {};
  options.groups = 65;
  EXPECT_THROW((void)make_generator("clustered", options, 0), Error);
}

}  // namespace
}  // namespace shunt
