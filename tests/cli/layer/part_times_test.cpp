// How parts of a layer are told apart, and weights that every rank can make.
#include "cli/layer/part_times.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "cli/layer/random_experts.hpp"

namespace shunt::cli {
namespace {

TEST(PartTimes, APartIsWhatItAddsToTheSlowestRank) {
  World::spawn(2, [](World& world) {
    const bool is_first = world.rank().value == 0;
    PartTimes times;
    // Rank 1 is late with its experts, and rank 0 waits for it in combine.
    times.add(is_first ? PartTimes::Ends{1, 3, 5, 12} : PartTimes::Ends{2, 3, 10, 11});
    times.take_slowest(world);
    EXPECT_EQ(times.median_of(LayerPart::plan), 2);
    EXPECT_EQ(times.median_of(LayerPart::dispatch), 1);
    EXPECT_EQ(times.median_of(LayerPart::experts), 7);
    EXPECT_EQ(times.median_of(LayerPart::combine), 2);
    EXPECT_EQ(times.median(), 12);
  });
}

TEST(PartTimes, SpeedupsAreRatiosOfTheSameRepetition) {
  PartTimes slow;
  PartTimes fast;
  for (const double ms : {10.0, 40.0, 30.0}) slow.add({1, 2, 3, ms});
  for (const double ms : {5.0, 10.0, 10.0}) fast.add({1, 2, 3, ms});
  EXPECT_EQ(fast.speedups_over(slow), (std::vector<double>{2, 4, 3}));
}

TEST(RandomExperts, CopiesAreEqualAndExpertsAreNot) {
  LayerConfig config;
  config.shuffle.hidden = 6;
  config.ffn = 4;
  RandomExperts experts(config);
  const auto map = ExpertMap::from_placement(3, {{ExpertId(0), ExpertId(2)}, {ExpertId(1), ExpertId(2)}, {}});
  const ExpertWeights first = experts.of_rank(map, RankId(0));
  const ExpertWeights second = experts.of_rank(map, RankId(1));
  ASSERT_EQ(first.experts.size(), 2u);
  EXPECT_TRUE(experts.of_rank(map, RankId(2)).experts.empty());
  EXPECT_EQ(first.experts[1].gate_up, second.experts[1].gate_up);  // made once
  RandomExperts elsewhere(config);
  const auto bytes = std::size_t{2 * 4 * 6} * size_of(bf16);
  EXPECT_EQ(std::memcmp(elsewhere.of_expert(2).gate_up, first.experts[1].gate_up, bytes), 0);
  EXPECT_NE(std::memcmp(first.experts[0].gate_up, first.experts[1].gate_up, bytes), 0);

  const ReferenceExpert reference = experts.reference(2);
  EXPECT_EQ(reference.gate_up, widened({first.experts[1].gate_up, bytes}, bf16));
  EXPECT_EQ(reference.down, widened({first.experts[1].down, bytes / 2}, bf16));
}

}  // namespace
}  // namespace shunt::cli
