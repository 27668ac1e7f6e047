// How rows are divided among threads and for bulk copies, and which rows permit those.
#include "kernels/cuda/geometry.hpp"

#include <gtest/gtest.h>

#include "kernels/cuda/bulk_copy_rows.hpp"
#include "kernels/cuda/pipelined_reduce_rows.hpp"
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

constexpr std::size_t kMostPiece = 16 << 10;
constexpr std::size_t kRing = 48 << 10;
constexpr std::size_t kMostSlots = 32;

TEST(BulkGeometry, KeepsRowsWholeThatFit) {
  const BulkGeometry cut = bulk_geometry(7168 * 2, kMostPiece, kRing, kMostSlots);
  EXPECT_EQ(cut.piece_bytes, 7168 * 2);
  EXPECT_EQ(cut.num_pieces, 1);
  EXPECT_EQ(cut.num_slots, 3);
}

TEST(BulkGeometry, CutsOthersIntoNearlyEqualPieces) {
  const BulkGeometry cut = bulk_geometry(16400, kMostPiece, kRing, kMostSlots);
  EXPECT_EQ(cut.piece_bytes, 8208);
  EXPECT_EQ(cut.num_pieces, 2);
}

TEST(BulkGeometry, CoversEveryRowOnceWithAlignedPieces) {
  for (std::size_t bytes = 16; bytes < 400'000; bytes += 16) {
    const BulkGeometry cut = bulk_geometry(bytes, kMostPiece, kRing, kMostSlots);
    const auto piece = static_cast<std::size_t>(cut.piece_bytes);
    const auto pieces = static_cast<std::size_t>(cut.num_pieces);
    const auto slots = static_cast<std::size_t>(cut.num_slots);
    ASSERT_EQ(piece % kBulkAlignment, 0u);
    ASSERT_LE(piece, kMostPiece);
    ASSERT_GE(piece * pieces, bytes);
    ASSERT_LT(piece * (pieces - 1), bytes);
    ASSERT_GE(slots, 2u);
    ASSERT_LE(slots, kMostSlots);
    ASSERT_LE(slots * piece, kRing);
  }
}

BulkCopyRows copy_of(std::int32_t topk, std::size_t row_bytes) {
  BulkCopyRows copy{};
  copy.topk = topk;
  copy.row_bytes = row_bytes;
  return copy;
}

ReduceRows sum_of(std::int32_t topk, std::int64_t hidden) {
  ReduceRows sum{};
  sum.topk = topk;
  sum.hidden = hidden;
  sum.row_dtype = sum.wire_dtype = sum.result_dtype = bf16;
  return sum;
}

TEST(FewSms, RequireAtMostARowPerLane) {
  for (const std::int32_t topk : {1, 32, 33, 64}) {
    EXPECT_EQ(fits_bulk_copies(copy_of(topk, 64)), topk <= 32) << topk;
    EXPECT_EQ(fits_pipeline(sum_of(topk, 64)), topk <= 32) << topk;
  }
}

TEST(FewSms, RequireAlignedRows) {
  EXPECT_FALSE(fits_bulk_copies(copy_of(1, 72)));
  EXPECT_FALSE(fits_pipeline(sum_of(1, 12)));
}

}  // namespace
}  // namespace shunt::device
