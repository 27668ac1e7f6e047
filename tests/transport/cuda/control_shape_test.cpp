#include "transport/cuda/control.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace shunt::test {
namespace {

TEST(ControlShape, KeepsWhatRanksSayApart) {
  const device::ControlShape shape{7, 13};
  std::vector<std::pair<std::size_t, std::size_t>> ranges;
  for (std::int32_t rank = 0; rank < 7; ++rank) {
    ranges.emplace_back(shape.signal(rank), 4);
    for (const std::uint32_t barrier : {4u, 5u}) {
      ranges.emplace_back(shape.record(barrier, rank), sizeof(device::BarrierRecord));
      ranges.emplace_back(shape.words(barrier, rank), 13 * 4);
    }
  }
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i)
    EXPECT_LE(ranges[i - 1].first + ranges[i - 1].second, ranges[i].first);
  EXPECT_LE(ranges.back().first + ranges.back().second, shape.bytes());
  EXPECT_EQ(shape.record(4, 0) % alignof(device::BarrierRecord), 0u);
  EXPECT_EQ(shape.record(4, 3), shape.record(6, 3));
}

}  // namespace
}  // namespace shunt::test
