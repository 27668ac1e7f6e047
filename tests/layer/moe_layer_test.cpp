// Compares every implementation of a layer with plain loops, over every transport.
#include "layer/moe_layer.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "layer/layer_case.hpp"
#include "support/require_error.hpp"

namespace shunt::test {
namespace {

constexpr LayerWay kWays[] = {LayerWay::conventional, LayerWay::expert_major, LayerWay::token_unique};
constexpr std::uint64_t kCases = 16;

class MoeLayerTest : public ::testing::TestWithParam<std::int32_t> {
 protected:
  void SetUp() override {
    if (Gemm::library().empty()) GTEST_SKIP() << "this build has neither oneDNN nor OpenBLAS";
  }
};

/// Copies a layer's result, because the next call overwrites it.
std::vector<std::byte> bytes_of(const ConstTensor& tensor) { return {tensor.data, tensor.data + tensor.bytes()}; }

/// Throws an exception with the difference, which reports from ranks in other processes too.
void expect_as_reference(World& world, const LayerCase& each, LayerWay way, const ExpertsOptions& options = {}) {
  const RankId rank = world.rank();
  const auto layer = make_moe_layer(world, way, each.weights_of(rank), options);
  const ConstTensor result = layer->run(each.routing.routing(rank), each.routing.map, each.x[rank.index()].tensor());
  if (result.rows != each.x[rank.index()].rows()) throw std::runtime_error("results of another number of tokens");
  for (std::int64_t token = 0; token < result.rows; ++token)
    if (const double error = each.error_of(rank, token, result); !(error <= tolerance_of(each.dtype)))
      throw std::runtime_error(fmt::format("{} of {}, seed {}, rank {}, token {}: off by {}", to_string(way),
                                           to_string(each.dtype), each.seed, rank.value, token, error));
}

void expect_every_way(WorldKind kind, const Topology& topology, std::uint64_t first_seed) {
  for (const DType dtype : {f32, bf16}) {
    std::vector<LayerCase> cases;
    for (std::uint64_t seed = first_seed; seed < first_seed + kCases; ++seed)
      cases.push_back(random_layer_case(seed, topology, dtype));
    World::spawn(topology.num_ranks(),
                 [&](World& world) {
                   for (const LayerCase& each : cases)
                     for (const LayerWay way : kWays) expect_as_reference(world, each, way);
                 },
                 {.kind = kind, .topology = topology});
  }
}

TEST_P(MoeLayerTest, EveryWayGivesWhatPlainLoopsCompute) {
  expect_every_way(WorldKind::inproc, Topology::virtual_nodes(GetParam(), 1), 100);
}

TEST_P(MoeLayerTest, EveryWayWorksBetweenNodesThatShareNoMemory) {
  expect_every_way(WorldKind::islands, Topology::virtual_nodes(GetParam(), (GetParam() + 1) / 2), 200);
}

TEST_P(MoeLayerTest, EveryWayWorksBetweenProcesses) {
  expect_every_way(WorldKind::shm, Topology::virtual_nodes(GetParam(), 1), 300);
}

TEST_P(MoeLayerTest, BlocksAndTurnsOfAnySizeGiveTheSameLayer) {
  const Topology topology = Topology::virtual_nodes(GetParam(), 1);
  const ExpertsOptions options[] = {{.block_rows = 1, .rows_per_expert = 1},
                                    {.block_rows = 3, .rows_per_expert = 2},
                                    {.block_rows = 7, .rows_per_expert = 1000}};
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const LayerCase each = random_layer_case(seed, topology, seed % 2 == 0 ? bf16 : f32);
    World::spawn(GetParam(), [&](World& world) {
      for (const ExpertsOptions& option : options)
        for (const LayerWay way : kWays) expect_as_reference(world, each, way, option);
    });
  }
}

TEST_P(MoeLayerTest, RepeatsAndASecondLayerGiveTheSameBits) {
  const Topology topology = Topology::virtual_nodes(GetParam(), 1);
  const LayerCase each = random_layer_case(7, topology, bf16);
  const LayerCase other = random_layer_case(8, topology, bf16);
  World::spawn(GetParam(), [&](World& world) {
    const RankId rank = world.rank();
    const auto x = each.x[rank.index()].tensor();
    for (const LayerWay way : kWays) {
      const auto layer = make_moe_layer(world, way, each.weights_of(rank));
      const auto second = make_moe_layer(world, way, each.weights_of(rank));
      const auto first = bytes_of(layer->run(each.routing.routing(rank), each.routing.map, x));
      for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(bytes_of(layer->run(each.routing.routing(rank), each.routing.map, x)), first) << to_string(way);
        EXPECT_EQ(bytes_of(second->run(each.routing.routing(rank), each.routing.map, x)), first) << to_string(way);
        expect_as_reference(world, other, way);  // another case in between
      }
    }
  });
}

TEST_P(MoeLayerTest, TokenUniqueSendsNoMoreThanExpertMajorAndTheConventionalWay) {
  const Topology topology = Topology::virtual_nodes(GetParam(), (GetParam() + 1) / 2);
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const LayerCase each = random_layer_case(seed, topology, f32);
    World::spawn(GetParam(),
                 [&](World& world) {
                   std::vector<SentBytes> sent;
                   std::vector<std::int64_t> expert_rows;
                   for (const LayerWay way : kWays) {
                     const auto layer = make_moe_layer(world, way, each.weights_of(world.rank()));
                     layer->plan(each.routing.routing(world.rank()), each.routing.map);
                     sent.push_back(layer->sent_bytes());
                     expert_rows.push_back(layer->num_expert_rows());
                     EXPECT_LE(layer->num_rows(), layer->num_expert_rows());
                   }
                   EXPECT_EQ(sent[0].between_ranks, sent[1].between_ranks);  // one row per (token, expert)
                   EXPECT_LE(sent[2].between_ranks, sent[1].between_ranks);
                   EXPECT_LE(sent[1].between_nodes, sent[0].between_nodes);  // once per node instead of once per expert
                   EXPECT_EQ(expert_rows[0], expert_rows[1]);
                   EXPECT_EQ(expert_rows[0], expert_rows[2]);
                 },
                 {.topology = topology});
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, MoeLayerTest, ::testing::Values(1, 2, 4, 7));

TEST(MoeLayerErrors, AMapForOtherExpertsOrRanksIsRefused) {
  if (Gemm::library().empty()) GTEST_SKIP() << "this build has neither oneDNN nor OpenBLAS";
  World::spawn(1, [](World& world) {
    const std::vector<float> matrix(2);
    const auto* const bytes = reinterpret_cast<const std::byte*>(matrix.data());
    for (const LayerWay way : kWays) {
      const auto layer = make_moe_layer(world, way, {.dtype = f32, .hidden = 1, .ffn = 1, .experts = {{bytes, bytes}}});
      require_error([&] { layer->plan({}, ExpertMap::contiguous(3, 1)); }, ErrorCode::invalid_argument,
                    "rank 0: the map gives it 3 experts, it has weights of 1");
      require_error([&] { layer->plan({}, ExpertMap::contiguous(2, 2)); }, ErrorCode::invalid_argument,
                    "the map is for 2 ranks, the world has 1");
    }
    require_error([&] { (void)make_moe_layer(world, LayerWay::expert_major, {.dtype = f16, .hidden = 1, .ffn = 1}); },
                  ErrorCode::unsupported, "f32 or bf16, not in f16");
  });
}

TEST(LayerWay, NamesAreReadBackAndOthersRefused) {
  for (const LayerWay way : kWays) EXPECT_EQ(parse_layer_way(to_string(way)), way);
  require_error([] { (void)parse_layer_way("fast"); }, ErrorCode::invalid_argument,
                "'fast': expected conventional, expert_major or token_unique");
}

}  // namespace
}  // namespace shunt::test
