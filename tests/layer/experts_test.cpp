// Guarantees of Experts besides the correct result: the order of sums, and what is not stored.
#include "layer/experts.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "layer/layer_case.hpp"
#include "shunt/engine.hpp"
#include "shunt/float_formats.hpp"
#include "shunt/world.hpp"

namespace shunt::test {
namespace {

class ExpertsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Gemm::library().empty()) GTEST_SKIP() << "this build has neither oneDNN nor OpenBLAS";
  }
};

Plan plan_unique(Engine& engine, const LayerCase& each, RankId rank) {
  return engine.plan(each.routing.routing(rank), each.routing.map, {.layout = Layout::token_unique});
}

/// The sum of one unique row, from the experts' stored outputs, along the tree.
std::vector<float> tree_sum(const Plan& plan, std::int64_t unique, const HostRows& outputs) {
  const auto topk = static_cast<std::size_t>(plan.topk());
  std::vector<float> sum;
  for (std::size_t term = 0; term < topk; ++term) {
    const std::size_t entry = static_cast<std::size_t>(unique) * topk + term;
    const std::int32_t row = plan.expert_rows_of_unique()[entry];
    if (row < 0) break;
    const std::vector<float> y = outputs.floats(row);
    if (sum.empty()) sum.assign(y.size(), 0.0f);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const float weighted = plan.unique_weights()[entry] * y[i];
      sum[i] = term == 0 ? weighted : sum[i] + weighted;
    }
  }
  return sum;
}

TEST_F(ExpertsTest, SumsOfUniqueRowsFollowTheReductionTreeBitForBit) {
  const Topology topology = Topology::virtual_nodes(3, 1);
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const LayerCase each = random_layer_case(seed, topology, seed % 2 == 0 ? bf16 : f32);
    World::spawn(3, [&](World& world) {
      const RankId rank = world.rank();
      Engine engine(world, {.hidden = each.hidden, .dtype = each.dtype});
      const Plan plan = plan_unique(engine, each, rank);
      const Rows rows = engine.dispatch(plan, each.x[rank.index()].tensor()).wait();
      // The same blocks in both layouts, so that products have the same bits.
      Experts experts(each.weights_of(rank), {.block_rows = 16, .rows_per_expert = 1 << 20});

      HostRows copies(each.dtype, plan.num_expert_rows(), each.hidden);
      HostRows outputs(each.dtype, plan.num_expert_rows(), each.hidden);
      for (std::int64_t row = 0; row < copies.rows(); ++row)
        std::memcpy(copies.tensor().row(row), rows.data.row(plan.unique_of_expert_row()[static_cast<std::size_t>(row)]),
                    rows.data.row_bytes());
      experts.run(plan.expert_offsets(), plan.expert_counts(), copies.tensor(), outputs.tensor());

      HostRows sums(each.dtype, plan.num_rows(), each.hidden);
      experts.run(plan, rows.data, sums.tensor());
      for (std::int64_t row = 0; row < sums.rows(); ++row) {
        HostRows expected(each.dtype, 1, each.hidden);
        expected.set_floats(0, tree_sum(plan, row, outputs));
        ASSERT_EQ(sums.floats(row), expected.floats(0)) << "seed " << seed << ", row " << row;
      }
    });
  }
}

TEST_F(ExpertsTest, NeverStoreARowPerTokenAndExpert) {
  constexpr std::int64_t kTokens = 2000;
  constexpr std::int64_t kHidden = 64;
  constexpr std::int32_t kExperts = 8;
  const std::vector<std::uint16_t> matrix(2 * 8 * kHidden, bf16_from_f32(0.01f));
  const auto* const bytes = reinterpret_cast<const std::byte*>(matrix.data());
  World::spawn(1, [&](World& world) {
    std::vector<std::int32_t> choices;
    for (std::int64_t token = 0; token < kTokens; ++token)
      for (std::int32_t expert = 0; expert < kExperts; ++expert) choices.push_back(expert);
    Engine engine(world, {.hidden = kHidden, .dtype = bf16});
    const Plan plan = engine.plan({.experts = choices, .weights = {}, .topk = kExperts},
                                  ExpertMap::contiguous(kExperts, 1), {.layout = Layout::token_unique});
    HostRows rows(bf16, kTokens, kHidden);
    HostRows out(bf16, kTokens, kHidden);
    Experts experts(
        {.dtype = bf16, .hidden = kHidden, .ffn = 8, .experts = std::vector<ExpertMatrices>(kExperts, {bytes, bytes})},
        {.block_rows = 32, .rows_per_expert = 64});
    experts.run(plan, rows.tensor(), out.tensor());
    const auto copies = static_cast<std::size_t>(plan.num_expert_rows()) * rows.tensor().row_bytes();
    EXPECT_EQ(copies, std::size_t{2000 * 8 * 64 * 2});
    EXPECT_LT(experts.workspace_bytes(), copies / 16);
  });
}

}  // namespace
}  // namespace shunt::test
