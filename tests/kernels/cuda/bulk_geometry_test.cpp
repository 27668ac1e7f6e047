// How rows are divided for bulk copies, and which rows permit them.
#include "kernels/cuda/geometry.hpp"

#include <gtest/gtest.h>

#include "kernels/cuda/bulk_copy_rows.hpp"
#include "kernels/cuda/pipelined_reduce_rows.hpp"

namespace shunt::device {
namespace {

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
