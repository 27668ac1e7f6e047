// Expert maps and plans as words in device memory; runs without a device.
#include "plan/cuda/map_tables.hpp"

#include <gtest/gtest.h>

#include "bench/reference/copies.hpp"
#include "core/copy_choice.hpp"
#include "plan/cuda/plan_arrays.hpp"
#include "support/random_case.hpp"

namespace shunt::device {
namespace {

TEST(MapTables, MatchTheMap) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 generator(seed);
    const test::RandomCase all = test::random_case(generator);
    const MapWords words(all.map, all.topology, false);
    const MapTables tables = words.at(words.words().data());
    EXPECT_EQ(tables.has_replicas(), all.map.has_replicas());
    for (std::int32_t expert = 0; expert < all.map.num_experts(); ++expert) {
      const auto copies = all.map.copies(ExpertId(expert));
      EXPECT_EQ(tables.only_copy[expert], copies.size() == 1 ? copies.front().value : -1);
    }
    const MapTables of_copies = tables.of_copies();
    EXPECT_FALSE(of_copies.has_replicas());
    for (std::int32_t p = 0; p < all.map.num_physical(); ++p) {
      EXPECT_EQ(tables.rank_of[p], all.map.rank(PhysicalId(p)).value);
      EXPECT_EQ(of_copies.only_copy[p], p);
    }
    for (std::int32_t rank = 0; rank < all.map.num_ranks(); ++rank) {
      EXPECT_EQ(tables.first_of_rank[rank + 1] - tables.first_of_rank[rank], all.map.num_local(RankId(rank)));
      EXPECT_EQ(tables.node_of[rank], all.topology.node(RankId(rank)).value);
    }
  }
}

TEST(MapTables, GiveTheCopiesThatTheReferenceChooses) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 generator(seed);
    const test::RandomCase all = test::random_case(generator);
    const MapWords words(all.map, all.topology, false);
    const MapTables tables = words.at(words.words().data());
    const auto topk = static_cast<std::size_t>(all.topk);
    for (std::size_t rank = 0; rank < all.ranks.size(); ++rank)
      for (std::size_t first = 0; first < all.ranks[rank].experts.size(); first += topk) {
        const auto experts = std::span(all.ranks[rank].experts).subspan(first, topk);
        std::vector<PhysicalId> copies(topk);
        NeededList needed(tables.node_of[rank]);
        choose_copies(tables.copies, static_cast<std::int32_t>(rank), experts.data(), all.topk, needed,
                      [&](std::int32_t choice, std::int32_t copy) {
                        copies[static_cast<std::size_t>(choice)] = PhysicalId(copy);
                      });
        ASSERT_EQ(copies, reference_copies(all.map, all.topology, RankId(rank), experts)) << "seed " << seed;
      }
  }
}

TEST(MapTables, OrderSumsByNodeThenRankThenExpert) {
  // Rank 0 is on node 1, rank 1 on node 0.
  const Topology topology = Topology::from_nodes({NodeId(1), NodeId(0)});
  const ExpertMap map = ExpertMap::from_placement(3, {{ExpertId(0), ExpertId(2)}, {ExpertId(1)}});
  const MapWords tree(map, topology, false);
  const MapTables by_tree = tree.at(tree.words().data());
  EXPECT_LT(by_tree.key_of[2], by_tree.key_of[0]);
  EXPECT_LT(by_tree.key_of[0], by_tree.key_of[1]);
  const MapWords flat(map, topology, true);
  const MapTables by_expert = flat.at(flat.words().data());
  EXPECT_LT(by_expert.key_of[0], by_expert.key_of[2]);
  EXPECT_LT(by_expert.key_of[2], by_expert.key_of[1]);
}

TEST(PlanBlock, KeepsArraysApart) {
  const PlanShape shape{.num_tokens = 300,
                        .topk = 3,
                        .num_physical = 5,
                        .num_local = 2,
                        .num_ranks = 2,
                        .unique = true,
                        .max_rows = 600,
                        .max_expert_rows = 1200};
  const PlanBlock counted(shape, nullptr);
  std::vector<std::byte> memory(counted.bytes());
  const PlanArrays arrays = PlanBlock(shape, memory.data()).arrays();
  EXPECT_EQ(reinterpret_cast<std::byte*>(arrays.unique_maps), memory.data());
  EXPECT_EQ(reinterpret_cast<std::byte*>(arrays.tile_counts),
            memory.data() + 4 * (UniqueMaps::of(shape).num_words + 3) / 16 * 16);
  EXPECT_EQ(shape.num_tiles(), 2);
  EXPECT_EQ(shape.rows_per_token(), 2);
  EXPECT_LE(reinterpret_cast<std::byte*>(arrays.expert_counts + 2), memory.data() + counted.bytes());
}

TEST(TileMemory, HoldsTheLargestModelsThatAreKnown) {
  // Without the memory that kernels use otherwise, as most_tile_bytes() reports on a device.
  constexpr std::size_t kOfAnyDevice = 95 << 10;          // compute capability 8.6
  constexpr std::size_t kOfLargeDevices = 159 << 10;      // 8.0
  EXPECT_LE(tile_bytes(256 + 32 + 64, 8), kOfAnyDevice);  // DeepSeek-V3 with replicas on 64 ranks
  EXPECT_LE(tile_bytes(1024 + 128, 32), kOfLargeDevices);
}

}  // namespace
}  // namespace shunt::device
