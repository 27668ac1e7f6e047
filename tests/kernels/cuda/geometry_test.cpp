// How rows are spread over threads.
#include "kernels/cuda/geometry.hpp"

#include <gtest/gtest.h>

namespace shunt::device {
namespace {

TEST(RowGeometry, GivesAThreadFourAccesses) {
  const RowGeometry rows = row_geometry(7168 * 2, 0);
  EXPECT_EQ(rows.access_bytes, 16);
  EXPECT_EQ(rows.num_accesses, 896);
  EXPECT_EQ(rows.threads, 224);
}

TEST(RowGeometry, TakesTheWidestAccessThatEveryRowAllows) {
  EXPECT_EQ(row_geometry(32, 0x1000).access_bytes, 16);
  EXPECT_EQ(row_geometry(24, 0x1000).access_bytes, 8);
  EXPECT_EQ(row_geometry(32, 0x1004).access_bytes, 4);
  EXPECT_EQ(row_geometry(6, 0x1000).access_bytes, 2);
  EXPECT_EQ(row_geometry(3, 0x1000).access_bytes, 1);
}

TEST(RowGeometry, KeepsToWholeWarpsThatABlockCanHave) {
  for (std::size_t bytes = 1; bytes < 200'000; bytes += 7) {
    const RowGeometry rows = row_geometry(bytes, 0);
    EXPECT_EQ(rows.threads % 32, 0);
    EXPECT_GE(rows.threads, 32);
    EXPECT_LE(rows.threads, 1024);
    EXPECT_EQ(static_cast<std::size_t>(rows.num_accesses) * static_cast<std::size_t>(rows.access_bytes), bytes);
  }
}

}  // namespace
}  // namespace shunt::device
