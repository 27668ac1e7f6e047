#include "placement/swap_tables.hpp"

#include <gtest/gtest.h>

#include "placement/random.hpp"
#include "placement/routings.hpp"

namespace shunt {
namespace {

using placement::Random;
using placement::SwapTables;

constexpr std::size_t kExperts = 10, kItems = 12, kGroups = 4;  // two vacancies

std::vector<std::int32_t> start() {
  std::vector<std::int32_t> group_of;
  for (std::size_t item = 0; item < kItems; ++item) group_of.push_back(static_cast<std::int32_t>(item % kGroups));
  return group_of;
}

TEST(SwapTables, GiveTheChangeOfEverySwap) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto tokens = test::random_tokens(seed, kExperts, 4, 80, 1, true);
    SwapTables tables(tokens, kItems, kGroups);
    std::vector<std::int32_t> group_of = start();
    tables.assign(group_of);
    Random random(seed);
    for (int step = 0; step < 10; ++step) {
      ASSERT_EQ(tables.total(), test::touched_ranks(tokens, group_of));
      for (std::size_t a = 0; a < kItems; ++a)
        for (std::size_t b = 0; b < kItems; ++b) {
          if (group_of[a] == group_of[b]) continue;
          std::vector<std::int32_t> swapped = group_of;
          std::swap(swapped[a], swapped[b]);
          const SwapTables::Change change = tables.change(a, b);
          ASSERT_EQ(tables.total() + change.at_a + change.at_b, test::touched_ranks(tokens, swapped))
              << "seed " << seed << ", step " << step << ", items " << a << " and " << b;
        }
      const std::size_t a = random.below(kItems), b = random.below(kItems);
      if (group_of[a] == group_of[b]) continue;
      tables.swap(a, b);
      std::swap(group_of[a], group_of[b]);
    }
  }
}

TEST(SwapTables, AttributeAChangeToItsGroup) {
  const auto tokens = test::random_tokens(7, kExperts, 4, 80, 1, true);
  SwapTables tables(tokens, kItems, kGroups);
  tables.assign(start());
  for (std::size_t a = 0; a < kExperts; ++a)
    for (std::size_t b = a + 1; b < kExperts; ++b) {
      if (tables.group(a) == tables.group(b)) continue;
      const SwapTables::Change change = tables.change(a, b);
      SwapTables after(tokens, kItems, kGroups);
      std::vector<std::int32_t> swapped = start();
      std::swap(swapped[a], swapped[b]);
      after.assign(swapped);
      const auto at = [&](std::size_t item) { return static_cast<std::size_t>(tables.group(item)); };
      EXPECT_EQ(tables.touching()[at(a)] + change.at_a, after.touching()[at(a)]);
      EXPECT_EQ(tables.touching()[at(b)] + change.at_b, after.touching()[at(b)]);
    }
}

}  // namespace
}  // namespace shunt
