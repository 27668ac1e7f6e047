// Times of the parts of a layer.
#include "bench/timings.hpp"

#include <gtest/gtest.h>

namespace shunt::bench {
namespace {

TEST(PartTimes, CountWhatAPartAddsToTheSlowestRank) {
  World::spawn(2, [](World& world) {
    const bool is_first = world.rank().value == 0;
    PartTimes times;
    // Rank 1's experts are slow, and rank 0 waits for it in combine.
    times.add(is_first ? PartTimes::Ends{1, 3, 5, 12} : PartTimes::Ends{2, 3, 10, 11});
    times.take_slowest(world);
    EXPECT_EQ(times.median_of(LayerPart::plan), 2);
    EXPECT_EQ(times.median_of(LayerPart::dispatch), 1);
    EXPECT_EQ(times.median_of(LayerPart::experts), 7);
    EXPECT_EQ(times.median_of(LayerPart::combine), 2);
    EXPECT_EQ(times.median(), 12);
  });
}

TEST(PartTimes, CompareTheSameRepetitions) {
  PartTimes slow;
  PartTimes fast;
  for (const double ms : {10.0, 40.0, 30.0}) slow.add({1, 2, 3, ms});
  for (const double ms : {5.0, 10.0, 10.0}) fast.add({1, 2, 3, ms});
  EXPECT_EQ(fast.speedups_over(slow), (std::vector<double>{2, 4, 3}));
}

}  // namespace
}  // namespace shunt::bench
