// Rows per expert, numbers of chunks, and random experts of the layer benchmark.
#include "bench/layer/config.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "bench/layer/random_experts.hpp"
#include "bench/reference/rows.hpp"
#include "shunt/error.hpp"

namespace shunt::bench {
namespace {

ShuffleConfig small() {
  ShuffleConfig config;
  config.ranks = 3;
  config.tokens = 50;
  config.hidden = 8;
  config.experts = 7;
  config.topk = 2;
  config.routing = "zipf:1";
  return config;
}

TEST(LayerDemand, PadsEveryExpertToWholeTiles) {
  const ShuffleConfig config = small();
  const Workload workload(config);
  constexpr std::int64_t kTile = 4;
  std::int64_t aligned = 0;
  std::int64_t most = 0;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const LayerDemand demand = LayerDemand::of(config, workload, rank, kTile);
    EXPECT_EQ(demand.rows, 3 * 50 * 2);
    EXPECT_EQ(demand.aligned_rows % kTile, 0);
    EXPECT_LE(demand.most_unique_rows, demand.most_rows);
    EXPECT_GE(demand.most_aligned_rows, demand.most_rows);
    aligned += demand.aligned_rows;
    most = std::max(most, demand.aligned_rows);
    EXPECT_GE(demand.most_aligned_rows, most);
  }
  EXPECT_EQ(LayerDemand::of(config, workload, 0, kTile).most_aligned_rows, most);
  EXPECT_GE(aligned, 3 * 50 * 2);
  EXPECT_LE(aligned, 3 * 50 * 2 + 7 * (kTile - 1));
}

TEST(LayerDemand, EqualsTheRowsWithTilesOfOneRow) {
  const ShuffleConfig config = small();
  const Workload workload(config);
  EXPECT_EQ(LayerDemand::of(config, workload, 0, 1).most_aligned_rows, workload.most_rows_of_a_rank(false));
}

TEST(LayerDemand, CountsTheRowsOfEveryCopyOnItsOwnRank) {
  ShuffleConfig config = small();
  config.placed = ExpertMap::from_placement(7, {{0, 1}, {0, 2, 3, 4, 5, 6}, {}});
  const Workload workload(config);
  std::int64_t all = 0;        // rows for expert 0
  std::int64_t with_one = 0;   // those on rank 0: of tokens that also use expert 1
  std::int64_t on_rank_0 = 0;  // with_one and the rows for expert 1
  for (std::size_t source = 0; source < 3; ++source)
    for (std::size_t entry = 0; entry < workload.routing(source).experts.size(); ++entry) {
      all += workload.routing(source).experts[entry] == 0 ? 1 : 0;
      with_one += workload.routing(source).copies[entry] == PhysicalId(0) ? 1 : 0;
      on_rank_0 += workload.routing(source).copies[entry].value <= 1 ? 1 : 0;
    }
  EXPECT_GT(with_one, 0);
  EXPECT_LT(with_one, all);
  EXPECT_EQ(LayerDemand::of(config, workload, 0, 1).aligned_rows, on_rank_0);
  EXPECT_EQ(LayerDemand::of(config, workload, 1, 1).aligned_rows, 3 * 50 * 2 - on_rank_0);
  EXPECT_EQ(LayerDemand::of(config, workload, 2, 1).aligned_rows, 0);
  EXPECT_EQ(workload.most_rows_of_a_rank(false), std::max(on_rank_0, 3 * 50 * 2 - on_rank_0));
}

TEST(LayerConfig, NeedsAnExpertOnEveryRankOfADevice) {
  LayerConfig config;
  config.shuffle = small();
  config.shuffle.device = "cuda";
  config.shuffle.systems = {"shunt"};
  config.shuffle.placed = ExpertMap::from_placement(7, {{0}, {1, 2, 3, 4, 5, 6}, {}});
  EXPECT_THROW(config.check(), Error);
  config.shuffle.placed = ExpertMap::from_placement(7, {{0}, {1, 2, 3, 4, 5, 6}, {0}});
  EXPECT_NO_THROW(config.check());
}

TEST(LayerConfig, DefaultsToAboutAThousandRowsPerExpertAndRun) {
  LayerConfig config;
  config.shuffle.ranks = 8;
  config.shuffle.experts = 64;
  EXPECT_EQ(config.num_chunks(), 4);
  config.shuffle.experts = 256;
  EXPECT_EQ(config.num_chunks(), 2);  // the copy per expert is never stored as a whole
  config.shuffle.experts = 8;
  EXPECT_EQ(config.num_chunks(), 8);
  config.chunks = 3;
  EXPECT_EQ(config.num_chunks(), 3);
}

TEST(RandomExperts, AreEqualForCopiesAndDifferBetweenExperts) {
  LayerConfig config;
  config.shuffle.hidden = 6;
  config.ffn = 4;
  RandomExperts experts(config);
  const auto map = ExpertMap::from_placement(3, {{ExpertId(0), ExpertId(2)}, {ExpertId(1), ExpertId(2)}, {}});
  const ExpertWeights first = experts.of_rank(map, RankId(0));
  const ExpertWeights second = experts.of_rank(map, RankId(1));
  ASSERT_EQ(first.experts.size(), 2u);
  EXPECT_TRUE(experts.of_rank(map, RankId(2)).experts.empty());
  EXPECT_EQ(first.experts[1].gate_up, second.experts[1].gate_up);  // cached
  RandomExperts elsewhere(config);
  const auto bytes = std::size_t{2 * 4 * 6} * size_of(bf16);
  EXPECT_EQ(std::memcmp(elsewhere.of_expert(2).gate_up, first.experts[1].gate_up, bytes), 0);
  EXPECT_NE(std::memcmp(first.experts[0].gate_up, first.experts[1].gate_up, bytes), 0);

  const ReferenceExpert reference = experts.reference(2);
  EXPECT_EQ(reference.gate_up, widened({first.experts[1].gate_up, bytes}, bf16));
  EXPECT_EQ(reference.down, widened({first.experts[1].down, bytes / 2}, bf16));
}

}  // namespace
}  // namespace shunt::bench
