#include "plan/prune.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "bench/reference/prune.hpp"
#include "shunt/copy_choice.hpp"
#include "shunt/error.hpp"
#include "support/prune_case.hpp"

namespace shunt {
namespace {

using test::PruneCase;
using test::random_prune_case;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;

constexpr std::uint64_t kCases = 3000;

// Compares bits, because weights may be NaN where an expert is dropped, and −0 is not 0.
bool are_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

TEST(Prune, EqualsTheReference) {
  double share_changed = 0, c_t_after = 0;
  std::int64_t num_dropped = 0;
  for (std::uint64_t seed = 0; seed < kCases; ++seed) {
    const PruneCase made = random_prune_case(seed);
    const PrunedRouting expected =
        reference_prune(made.routing(), made.scores, made.map, made.topology, made.options());
    const PrunedRouting actual = made.prune();
    ASSERT_EQ(actual.experts, expected.experts) << "seed " << seed << ": " << made.describe();
    ASSERT_TRUE(are_same_bits(actual.weights, expected.weights)) << "seed " << seed << ": " << made.describe();
    ASSERT_EQ(actual.topk, made.topk);
    ASSERT_EQ(actual.report.mass_kept, expected.report.mass_kept) << "seed " << seed << ": " << made.describe();
    ASSERT_EQ(actual.report.share_changed, expected.report.share_changed) << "seed " << seed;
    ASSERT_EQ(actual.report.c_t_before, expected.report.c_t_before) << "seed " << seed;
    ASSERT_EQ(actual.report.c_t_after, expected.report.c_t_after) << "seed " << seed << ": " << made.describe();
    ASSERT_EQ(actual.report.num_dropped, expected.report.num_dropped) << "seed " << seed;
    share_changed += actual.report.share_changed / kCases;
    c_t_after = std::max(c_t_after, actual.report.c_t_after);
    num_dropped += actual.report.num_dropped;
  }
  EXPECT_GT(share_changed, 0.2) << "the cases are too easy";
  EXPECT_GT(c_t_after, 2);
  EXPECT_GT(num_dropped, 100);
}

TEST(Prune, HandlesTheLargestTopKAndManyExperts) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const PruneCase made =
        random_prune_case(seed, {.ranks = 40, .nodes = 8, .experts = 1024, .topk = 64, .tokens = 6, .least_topk = 64});
    const PrunedRouting expected =
        reference_prune(made.routing(), made.scores, made.map, made.topology, made.options());
    const PrunedRouting actual = made.prune();
    ASSERT_EQ(actual.experts, expected.experts) << "seed " << seed << ": " << made.describe();
    ASSERT_TRUE(are_same_bits(actual.weights, expected.weights)) << "seed " << seed << ": " << made.describe();
  }
}

/// True if `limit` places cover the experts. Tries all subsets, so it is for few places only.
bool fits(const PruneCase& made, std::span<const std::int32_t> experts) {
  const bool by_node = made.level == PruneLevel::nodes;
  const std::int32_t num_places = by_node ? made.topology.num_nodes() : made.topology.num_ranks();
  for (unsigned subset = 0; subset < 1u << num_places; ++subset) {
    if (std::popcount(subset) > made.limit) continue;
    const auto is_covered = [&](std::int32_t expert) {
      if (expert < 0) return true;
      const auto copies = made.map.copies(ExpertId(expert));
      return std::any_of(copies.begin(), copies.end(), [&](PhysicalId copy) {
        const RankId rank = made.map.rank(copy);
        return (subset >> (by_node ? made.topology.node(rank).value : rank.value) & 1) != 0;
      });
    };
    if (std::all_of(experts.begin(), experts.end(), is_covered)) return true;
  }
  return false;
}

TEST(Prune, KeepsEveryTokenWithinTheLimitWithoutRepeats) {
  for (std::uint64_t seed = 0; seed < kCases; ++seed) {
    const PruneCase made = random_prune_case(seed);
    const PrunedRouting pruned = made.prune();
    const auto topk = static_cast<std::size_t>(made.topk);
    for (std::size_t token = 0; token < made.routing().num_tokens(); ++token) {
      const auto experts = std::span(pruned.experts).subspan(token * topk, topk);
      ASSERT_TRUE(fits(made, experts)) << "seed " << seed << " token " << token << ": " << made.describe();
      std::set<std::int32_t> seen;
      for (std::size_t slot = 0; slot < topk; ++slot) {
        const bool was_dropped = made.chosen.experts[token * topk + slot] == -1;
        ASSERT_TRUE(!was_dropped || experts[slot] == -1) << "a drop stays one";
        ASSERT_TRUE(experts[slot] == -1 || seen.insert(experts[slot]).second) << "seed " << seed << " token " << token;
      }
    }
    ASSERT_LE(pruned.report.c_t_after, made.limit);
  }
}

TEST(Prune, KeepsWhatAPlanServesWithinTheLimitWhereTheSourceIsKnown) {
  std::int64_t beyond_without_source = 0;
  for (std::uint64_t seed = 0; seed < kCases; ++seed) {
    PruneCase made = random_prune_case(seed);
    made.source = RankId(static_cast<std::int32_t>(seed) % made.topology.num_ranks());
    const CopyChoice choice(made.map, made.topology);
    const auto places_served = [&](std::span<const std::int32_t> experts) {
      std::vector<PhysicalId> copies(experts.size());
      choice.choose(made.source, experts, copies);
      std::set<std::int32_t> places;
      for (const PhysicalId copy : copies)
        if (copy.valid())
          places.insert(made.level == PruneLevel::nodes ? made.topology.node(made.map.rank(copy)).value
                                                        : made.map.rank(copy).value);
      return static_cast<std::int32_t>(places.size());
    };
    const auto topk = static_cast<std::size_t>(made.topk);
    const PrunedRouting pruned = made.prune();
    double before = 0, after = 0, routed = 0;
    for (std::size_t first = 0; first < pruned.experts.size(); first += topk) {
      const std::int32_t places = places_served(std::span(pruned.experts).subspan(first, topk));
      ASSERT_LE(places, made.limit) << "seed " << seed << " token " << first / topk << ": " << made.describe();
      const std::int32_t were = places_served(std::span(made.chosen.experts).subspan(first, topk));
      routed += were > 0;
      before += were;
      after += places;
    }
    if (routed > 0) {
      ASSERT_EQ(pruned.report.c_t_before, before / routed) << "seed " << seed << ": " << made.describe();
      ASSERT_EQ(pruned.report.c_t_after, after / routed) << "seed " << seed << ": " << made.describe();
    }
    PruneOptions options = made.options();
    options.source = {};
    const PrunedRouting without = prune(made.routing(), made.scores, made.map, made.topology, options);
    for (std::size_t first = 0; first < without.experts.size(); first += topk)
      beyond_without_source += places_served(std::span(without.experts).subspan(first, topk)) > made.limit;
    if (!made.map.has_replicas()) {
      ASSERT_EQ(without.experts, pruned.experts);
    }
  }
  EXPECT_GT(beyond_without_source, 100) << "the cases are too easy";
}

TEST(Prune, DropsTheLeastExpertOfTheLeastPlaceWhereCopiesLieApart) {
  // From rank 0: 0 is served there, so that 1, whose copies are on ranks 1 and 2, needs another rank. The walk admits
  // rank 1, which has both.
  const ExpertMap map = ExpertMap::from_placement(4, {{0, 2}, {0, 1, 3}, {1}});
  const std::vector<std::int32_t> experts = {1, 0};
  const std::vector<float> weights = {0.7f, 0.3f};
  const auto pruned = [&](RankId source) {
    return prune({experts, weights, 2}, {}, map, Topology::single_node(3), {.limit = 1, .source = source});
  };
  EXPECT_THAT(pruned({}).experts, ElementsAre(1, 0));
  EXPECT_THAT(pruned(RankId(0)).experts, ElementsAre(1, -1));
  EXPECT_THAT(pruned(RankId(0)).weights, ElementsAre(0.7f, 0.0f));
  EXPECT_EQ(pruned(RankId(0)).report.c_t_before, 2);
  EXPECT_EQ(pruned(RankId(0)).report.num_dropped, 1);
  EXPECT_THAT(pruned(RankId(1)).experts, ElementsAre(1, 0));
}

TEST(Prune, ChangesNothingWhereTheLimitDoesNotBind) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    PruneCase made = random_prune_case(seed);
    made.limit = seed % 2 == 0 ? made.topk : made.map.num_ranks();
    const PrunedRouting pruned = made.prune();
    ASSERT_EQ(pruned.experts, made.chosen.experts);
    if (made.chosen.weights.empty())
      ASSERT_THAT(pruned.weights, Each(1.0f));
    else
      ASSERT_TRUE(are_same_bits(pruned.weights, made.chosen.weights));
    ASSERT_EQ(pruned.report.share_changed, 0);
    ASSERT_EQ(pruned.report.mass_kept, 1);
    ASSERT_EQ(pruned.report.c_t_after, pruned.report.c_t_before);
  }
}

TEST(Prune, PruningTwiceIsPruningOnce) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    PruneCase made = random_prune_case(seed);
    if (made.map.has_replicas()) continue;
    const PrunedRouting once = made.prune();
    made.chosen = {once.experts, once.weights};
    const PrunedRouting twice = made.prune();
    ASSERT_EQ(twice.experts, once.experts) << "seed " << seed;
    ASSERT_TRUE(are_same_bits(twice.weights, once.weights)) << "seed " << seed;
  }
}

// Six experts on three ranks, two each; one token.
PruneCase small_case(std::vector<std::int32_t> experts, std::vector<float> weights, std::vector<float> scores) {
  const auto topk = static_cast<std::int32_t>(experts.size());
  return {Topology::single_node(3),
          ExpertMap::contiguous(6, 3),
          topk,
          {std::move(experts), std::move(weights)},
          std::move(scores)};
}

TEST(Prune, TakesTheBestScoredExpertsOfAdmittedRanks) {
  PruneCase made = small_case({4, 2, 0}, {0.5f, 0.25f, 0.125f}, {0.125f, 0.0625f, 0.25f, 0.03125f, 0.5f, 0.015625f});
  made.limit = 2;  // ranks 2 and 1
  PrunedRouting pruned = made.prune();
  EXPECT_THAT(pruned.experts, ElementsAre(4, 2, 3));
  EXPECT_THAT(pruned.weights, ElementsAre(0.5f, 0.25f, 0.03125f));
  EXPECT_EQ(pruned.report.mass_kept, 0.78125 / 0.875);
  EXPECT_EQ(pruned.report.share_changed, 1);
  EXPECT_EQ(pruned.report.c_t_before, 3);
  EXPECT_EQ(pruned.report.c_t_after, 2);
  made.limit = 1;  // rank 2, which has one expert more
  pruned = made.prune();
  EXPECT_THAT(pruned.experts, ElementsAre(4, 5, -1));
  EXPECT_THAT(pruned.weights, ElementsAre(0.5f, 0.015625f, 0.0f));
  EXPECT_EQ(pruned.report.num_dropped, 1);
}

TEST(Prune, EqualScoresGoToTheLowerExpert) {
  PruneCase made = small_case({5, 0, 2}, {}, std::vector<float>(6, 0.5f));
  EXPECT_THAT(made.prune().experts, ElementsAre(1, 0, -1)) << "rank 0 is admitted, though its expert stands second";
  made.limit = 2;
  EXPECT_THAT(made.prune().experts, ElementsAre(1, 0, 2)) << "of 1 and 3";
  EXPECT_THAT(small_case({2, 0}, {0.0f, -0.0f}, {}).prune().experts, ElementsAre(-1, 0)) << "-0 is 0";
}

TEST(Prune, WithoutScoresWeightsDecideAndTheRestIsDropped) {
  PruneCase made = small_case({0, 4, 5, -1}, {0.25f, 0.5f, 0.125f, 7.0f}, {});
  PrunedRouting pruned = made.prune();
  EXPECT_THAT(pruned.experts, ElementsAre(-1, 4, 5, -1));
  EXPECT_THAT(pruned.weights, ElementsAre(0.0f, 0.5f, 0.125f, 7.0f));
  EXPECT_EQ(pruned.report.mass_kept, 0.625 / 0.875);
  EXPECT_EQ(pruned.report.num_dropped, 1) << "what was dropped before does not count";
  made.renormalise = Renormalise::keep_sum;
  pruned = made.prune();
  EXPECT_THAT(pruned.weights, ElementsAre(0.0f, FloatEq(0.7f), FloatEq(0.175f), 7.0f));
}

TEST(Prune, NewWeightsAreInTheUnitsOfTheTokensOwn) {
  // The router's probabilities, normalised to a sum of 2 over the top three.
  const std::vector<float> scores{0.125f, 0.0625f, 0.25f, 0.03125f, 0.5f, 0.015625f};
  PruneCase made = small_case({4, 2, 0}, {8.0f / 7, 4.0f / 7, 2.0f / 7}, scores);
  made.limit = 2;
  EXPECT_THAT(made.prune().weights, ElementsAre(8.0f / 7, 4.0f / 7, FloatEq(0.5f / 7)));
  made.renormalise = Renormalise::keep_sum;
  const PrunedRouting pruned = made.prune();
  EXPECT_THAT(pruned.weights, ElementsAre(FloatEq(1.28f), FloatEq(0.64f), FloatEq(0.08f)));
  made.chosen.weights.clear();
  EXPECT_THAT(made.prune().weights, Each(1.0f)) << "a routing without weights still has none";
}

TEST(Prune, LeavesWeightsWhoseSumCannotBeRestored) {
  PruneCase made = small_case({0, 2}, {1e-30f, 1e30f}, {1, 0, 0.5f, 0, 0, 0});
  made.renormalise = Renormalise::keep_sum;
  EXPECT_THAT(made.prune().weights, ElementsAre(1e-30f, 0.0f)) << "no float is large enough";
  made.chosen.weights = {1, -3};
  EXPECT_THAT(made.prune().weights, ElementsAre(1.0f, 0.0f)) << "no sign would survive";
}

TEST(Prune, KeepsTheRoutersChoiceInRangeEvenIfOthersScoreBetter) {
  PruneCase made = small_case({0, 2}, {}, {0.4f, 0.5f, 0.1f, 0, 0, 0});
  EXPECT_THAT(made.prune().experts, ElementsAre(0, 1));
  made.scores = {0.1f, 0.5f, 0.1f, 0, 0, 0};
  EXPECT_THAT(made.prune().experts, ElementsAre(0, 1)) << "1 alone is new, though it is the best";
}

TEST(Prune, BySimilarityTheMostSimilarExpertInRangeIsTheReplacement) {
  // Calibration: 4 is similar to 1, 2 to 0 and a little to 1, 3 to none in range.
  const std::vector<float> calibration{0, 1, 0, 0, 1, 0,  //
                                       1, 0, 2, 0, 0, 0,  //
                                       0, 1, 1, 0, 0, 0,  //
                                       0, 0, 0, 1, 0, 1};
  PruneCase made = small_case({0, 2, 4, 3}, {0.5f, 0.25f, 0.125f, 0.0625f}, {});
  made.similarity = ExpertSimilarity::from_scores(calibration, 4, 6);
  PrunedRouting pruned = made.prune();
  EXPECT_THAT(pruned.experts, ElementsAre(0, 1, -1, -1)) << "2 comes first and takes the only one left";
  EXPECT_THAT(pruned.weights, ElementsAre(0.5f, 0.25f, 0.0f, 0.0f)) << "its weight is carried over";
  EXPECT_EQ(pruned.report.mass_kept, 0.5 / 0.9375) << "no score is known of 1";
  EXPECT_EQ(pruned.report.num_dropped, 2);
  made.limit = 2;  // ranks 0 and 1
  pruned = made.prune();
  EXPECT_THAT(pruned.experts, ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(pruned.weights, ElementsAre(0.5f, 0.25f, 0.125f, 0.0625f));
}

TEST(Prune, CountsNodesIfAsked) {
  PruneCase made = small_case({0, 2, 4}, {3, 2, 1}, {});
  made.topology = Topology::from_nodes({NodeId(1), NodeId(0), NodeId(1)});
  made.level = PruneLevel::nodes;
  const PrunedRouting pruned = made.prune();
  EXPECT_THAT(pruned.experts, ElementsAre(0, -1, 4)) << "ranks 0 and 2 are of one node";
  EXPECT_EQ(pruned.report.c_t_before, 2);
  EXPECT_EQ(pruned.report.c_t_after, 1);
}

TEST(Prune, ARankCountsIfItHoldsAnyCopy) {
  // Expert 0 has copies on ranks 0 and 2. Rank 2 covers expert 4 too, rank 0 only expert 0.
  PruneCase made = small_case({0, 4, 2}, {4, 2, 1}, {});
  made.map = ExpertMap::from_placement(
      6, {{ExpertId(0), ExpertId(1)}, {ExpertId(2), ExpertId(3)}, {ExpertId(0), ExpertId(4), ExpertId(5)}});
  EXPECT_THAT(made.prune().experts, ElementsAre(0, 4, -1));
  made.chosen = {{4, 2, 0}, {4, 2, 1}};
  EXPECT_THAT(made.prune().experts, ElementsAre(4, -1, 0)) << "the rank of 4 has 0 as well";
  made.chosen = {{0, 1, 4}, {4, 2, 2}};
  EXPECT_THAT(made.prune().experts, ElementsAre(0, 1, -1)) << "ranks that cover equally much: the lower";
}

TEST(Prune, ARoutingWithoutExpertsIsUnchanged) {
  for (const PrunedRouting& pruned :
       {small_case({-1, -1}, {}, {}).prune(), small_case({-1, -1}, {}, std::vector<float>(6)).prune()}) {
    EXPECT_THAT(pruned.experts, ElementsAre(-1, -1));
    EXPECT_EQ(pruned.report.mass_kept, 1);
    EXPECT_EQ(pruned.report.c_t_before, 0);
  }
  PruneCase none = small_case({0}, {}, {});
  none.chosen = {};
  EXPECT_TRUE(none.prune().experts.empty());
}

std::string refusal(const PruneCase& made) {
  try {
    (void)made.prune();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("prune: "));
    return error.what();
  }
  return "accepted";
}

TEST(Prune, RefusesInvalidSizesAndOptions) {
  const std::vector<float> scores(6, 0.5f);
  const auto sound = [&] { return small_case({0, 2}, {1, 1}, scores); };
  EXPECT_EQ(refusal(sound()), "accepted");
  PruneCase made = sound();
  made.limit = 0;
  EXPECT_THAT(refusal(made), HasSubstr("limit is 0, expected at least 1"));
  made = sound();
  made.source = RankId(made.map.num_ranks());
  EXPECT_THAT(refusal(made), HasSubstr("the source is rank 3, expected 0 to 2"));
  made = sound();
  made.level = PruneLevel(7);
  EXPECT_THAT(refusal(made), HasSubstr("level 7 does not exist"));
  made = sound();
  made.renormalise = Renormalise(7);
  EXPECT_THAT(refusal(made), HasSubstr("renormalise 7 does not exist"));
  made = sound();
  made.scores.pop_back();
  EXPECT_THAT(refusal(made), HasSubstr("5 scores, expected 1 tokens x 6 experts, or none"));
  made = sound();
  made.chosen.weights.pop_back();
  EXPECT_THAT(refusal(made), HasSubstr("1 weights for 2 experts"));
  made = sound();
  made.topk = 65;
  EXPECT_THAT(refusal(made), HasSubstr("topk is 65, expected 1 to 64"));
  made = sound();
  made.topology = Topology::single_node(2);
  EXPECT_THAT(refusal(made), HasSubstr("the expert map is for 3 ranks, the topology for 2"));
  made = sound();
  made.similarity = ExpertSimilarity::from_scores(scores, 2, 3);
  EXPECT_THAT(refusal(made), HasSubstr("the similarity is of 3 experts, the expert map has 6"));
}

TEST(Prune, RefusesInvalidTokens) {
  const float nan = std::nanf("");
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> scores(6, 0.5f);
  EXPECT_THAT(refusal(small_case({0, 6}, {}, {})), HasSubstr("token 0: expert 6 is out of range, expected -1 to 5"));
  EXPECT_THAT(refusal(small_case({-2, 1}, {}, {})), HasSubstr("expert -2 is out of range"));
  EXPECT_THAT(refusal(small_case({3, 3}, {}, {})), HasSubstr("token 0: expert 3 is named twice"));
  EXPECT_THAT(refusal(small_case({3, 4}, {1, nan}, {})), HasSubstr("the weight of expert 4 is nan"));
  EXPECT_EQ(refusal(small_case({3, -1}, {1, nan}, {})), "accepted") << "a drop's weight is ignored";
  EXPECT_THAT(refusal(small_case({3, 4}, {}, {0, 0, infinity, 0, 0, 0})), HasSubstr("the score of expert 2 is inf"));
  EXPECT_THAT(refusal(small_case({3, 4}, {}, {0, nan, 0, 0, 0, 0})), HasSubstr("the score of expert 1 is nan"));
  EXPECT_THAT(refusal(small_case({3, 4}, {}, {0, 0, 0, 0, 0, -2})),
              HasSubstr("token 0: the score of expert 5 is -2, expected a probability"));
  PruneCase second = small_case({3, 4}, {}, {});
  second.topk = 1;
  second.chosen.experts = {3, 9};
  EXPECT_THAT(refusal(second), HasSubstr("token 1: expert 9"));
}

TEST(ExpertSimilarity, IsTheCosineOfScores) {
  const std::vector<float> scores{3, 4, 0, 0,  //
                                  4, 3, 0, 1};
  const auto similarity = ExpertSimilarity::from_scores(scores, 2, 4);
  EXPECT_EQ(similarity.at(ExpertId(0), ExpertId(1)), 0.96f);
  EXPECT_EQ(similarity.at(ExpertId(1), ExpertId(0)), 0.96f);
  EXPECT_EQ(similarity.at(ExpertId(0), ExpertId(3)), 0.8f);
  EXPECT_EQ(similarity.at(ExpertId(1), ExpertId(1)), 1.0f);
  EXPECT_EQ(similarity.at(ExpertId(2), ExpertId(2)), 0.0f) << "never scored: like none";
  EXPECT_EQ(similarity.at(ExpertId(2), ExpertId(0)), 0.0f);
  EXPECT_EQ(similarity.num_experts(), 4);
  EXPECT_EQ(similarity.values().size(), 16u);
  EXPECT_THAT(ExpertSimilarity::from_scores({}, 0, 2).values(), Each(0.0f));
}

TEST(ExpertSimilarity, RefusesInvalidScores) {
  const auto refused = [](std::vector<float> scores, std::int64_t tokens, std::int32_t experts) -> std::string {
    try {
      (void)ExpertSimilarity::from_scores(scores, tokens, experts);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refused({}, 0, 0), HasSubstr("num_experts is 0, expected at least 1"));
  EXPECT_THAT(refused({1, 2, 3}, 2, 2), HasSubstr("3 scores, expected 2 tokens x 2 experts"));
  EXPECT_THAT(refused({}, -1, 2), HasSubstr("0 scores, expected -1 tokens"));
  EXPECT_THAT(refused({1, 2, std::nanf(""), 3}, 2, 2), HasSubstr("token 1: the score of expert 0 is nan"));
}

}  // namespace
}  // namespace shunt
