// How rows of many experts are divided into equal pieces of work.
#include "kernels/cuda/mlp/tiles.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace shunt::device {
namespace {

TEST(Tiles, AreEnoughHoweverRowsAreSpreadOverExperts) {
  std::mt19937 random(1);
  for (int round = 0; round < 1000; ++round) {
    std::vector<std::int64_t> counts(1 + random() % 40);
    std::int64_t rows = 0;
    std::int64_t tiles = 0;
    for (std::int64_t& count : counts) {
      count = random() % 3 == 0 ? 0 : static_cast<std::int64_t>(random() % 400);
      rows += count;
      tiles += tiles_of(count);
    }
    EXPECT_LE(tiles, most_tiles(rows, static_cast<std::int64_t>(counts.size())));
  }
}

TEST(Tiles, AreNotMoreThanTheWorstSpreadNeeds) {
  EXPECT_EQ(most_tiles(0, 8), 0);
  EXPECT_EQ(most_tiles(3, 8), 3);
  EXPECT_EQ(most_tiles(8, 8), 8);                              // one row each
  EXPECT_EQ(most_tiles(8 * kTileRows, 8), 8 + 7);              // one expert has 8 × 128 − 7 rows, seven have one
  EXPECT_EQ(most_tiles(std::int64_t{kTileRows} * 10, 1), 10);  // a single expert
}

TEST(Chunks, HaveRoomForAllRowsWhereverTheyEnd) {
  std::mt19937 random(2);
  for (int round = 0; round < 500; ++round) {
    const auto topk = static_cast<std::int32_t>(1 + random() % 8);
    const auto num_chunks = static_cast<std::int32_t>(1 + random() % 6);
    std::vector<std::int64_t> experts_of_row(random() % 200);
    std::int64_t all = 0;
    for (std::int64_t& experts : experts_of_row)
      all += experts = 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(topk));
    const ChunkShape shape = ChunkShape::of(std::max<std::int64_t>(all, 1), num_chunks, topk);
    std::int64_t before = 0;
    std::vector<std::int64_t> rows(static_cast<std::size_t>(num_chunks));
    for (const std::int64_t experts : experts_of_row) {
      rows[std::min(static_cast<std::size_t>(before / shape.rows), rows.size() - 1)] += experts;
      before += experts;
    }
    for (const std::int64_t in_chunk : rows) EXPECT_LE(in_chunk, shape.most_rows());
  }
}

}  // namespace
}  // namespace shunt::device
