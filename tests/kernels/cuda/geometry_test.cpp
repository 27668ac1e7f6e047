// How rows are divided among threads.
#include "kernels/cuda/geometry.hpp"

#include <gtest/gtest.h>

#include "kernels/cuda/quantise_rows.hpp"

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

TEST(QuantiseGeometry, GivesEveryElementOfAPieceAndEveryRowOfATokenAThread) {
  EXPECT_EQ(quantise_geometry(7168).threads, 448);
  for (std::int64_t hidden = 1; hidden < 40'000; hidden += 7) {
    const auto [threads, pieces] = quantise_geometry(hidden);
    EXPECT_GE(threads * kQuantisedUnit, std::min<std::int64_t>(hidden, kQuantisedPiece));
    EXPECT_GE(threads, Routing::kMaxTopK);
    EXPECT_LE(threads, 1024);
    EXPECT_EQ(threads % 32, 0);
    EXPECT_GE(std::int64_t{pieces} * kQuantisedPiece, hidden);
    EXPECT_LT(std::int64_t{pieces - 1} * kQuantisedPiece, hidden);
  }
}

}  // namespace
}  // namespace shunt::device
