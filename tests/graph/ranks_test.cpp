// Collective results of several ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph/model.hpp"
#include "graph/small_models.hpp"
#include "graph/spread.hpp"
#include "graph/tensor_space.hpp"

namespace shunt::graph {
namespace {

constexpr double kTolerance = 1e-10;
constexpr std::uint64_t kSeeds = 24;

/// The batch and the experts are divisible by 1, 2 and 4 ranks.
Model drop_free_model(std::uint64_t seed) {
  Model model = test::model_of(test::random_model(seed));
  model.sequences_per_rank = seed % 2 == 0 ? 4 : 8;
  model.moe->experts = model.moe->gate.topk == 1 ? 4 : 8;
  model.moe->gate.capacity_factor = 0;
  return model;
}

Graph step_on(std::int32_t ranks, Model model) {
  model.sequences_per_rank /= ranks;
  return build_training_step(model, ranks);
}

test::RankValues spread(const test::Values& whole, const Graph& graph) {
  test::RankValues given(static_cast<std::size_t>(graph.ranks));
  for (std::size_t rank = 0; rank < given.size(); ++rank)
    for (const auto& [name, tensor] : whole) given[rank][name] = test::share_of(tensor, graph, rank);
  return given;
}

class Spread : public testing::TestWithParam<std::int32_t> {};

TEST_P(Spread, StepGivesTheLossAndParametersOfOneRankWithTheWholeBatch) {
  bool has_balance_loss = false, has_bias = false, has_shared = false, has_latent = false, has_groups = false;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Model model = drop_free_model(seed);
    has_balance_loss |= model.moe->gate.balance_loss > 0;
    has_bias |= model.moe->gate.has_bias;
    has_shared |= model.moe->shared > 0;
    has_latent |= model.attention.kind == Attention::Kind::latent;
    has_groups |= model.moe->gate.groups > 1;
    const Graph one = step_on(1, model), graph = step_on(GetParam(), model);
    const test::RankValues given = test::random_declarations(one, seed);
    const test::RankValues whole = test::interpret(one, given);
    const test::RankValues parts = test::interpret(graph, spread(given[0], graph));
    const double loss = test::global_loss(one, whole);
    ASSERT_NEAR(test::global_loss(graph, parts), loss, kTolerance * std::abs(loss)) << seed;
    for (const Op& op : graph.ops()) {
      if (op.origin.phase != Phase::update) continue;
      for (const ValueId result : op.results)
        for (std::size_t rank = 0; rank < parts.size(); ++rank) {
          const std::string& name = graph.value(result).name;
          const test::Tensor expected = test::share_of(whole[0].at(name), graph, rank);
          ASSERT_TRUE(test::are_near(expected, parts[rank].at(name), kTolerance))
              << "seed " << seed << ", rank " << rank << ": " << name;
        }
    }
  }
  EXPECT_TRUE(has_balance_loss && has_bias && has_shared && has_latent && has_groups);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Spread, testing::Values(1, 2, 4));

/// By rank, the choices that the model's only gate keeps.
std::vector<std::vector<double>> kept_experts(const Graph& graph, const test::RankValues& given) {
  std::vector<std::vector<double>> kept;
  for (const test::Values& values : test::interpret(graph, given)) kept.push_back(values.at("l0.experts.kept").data);
  return kept;
}

// `limit` counts its own rank's tokens without communication: capacity is the number of rows that one rank may send to
// one expert, so that an expert receives at most ranks × capacity rows.
TEST(Capacity, CountsTheTokensOfOneRank) {
  const Graph graph = build_training_step(test::model_of(test::small_models()[1]), 2);
  test::RankValues given = test::random_declarations(graph, 5);
  const auto before = kept_experts(graph, given);
  std::int64_t capacity = 0;
  for (const Op& op : graph.ops())
    if (op.kind == OpKind::limit) capacity = op.attributes.integer("capacity");
  bool drops = false, exceeds_in_sum = false;
  for (double expert = 0; expert < 4; ++expert) {
    std::int64_t sum = 0;
    for (const std::vector<double>& own : before) {
      const auto count = std::count(own.begin(), own.end(), expert);
      EXPECT_LE(count, capacity);
      sum += count;
      drops |= std::count(own.begin(), own.end(), -1.0) > 0;
    }
    exceeds_in_sum |= sum > capacity;
  }
  EXPECT_TRUE(drops && exceeds_in_sum);
  given[0].at("tokens") = test::random_declarations(graph, 6)[0].at("tokens");
  const auto after = kept_experts(graph, given);
  EXPECT_NE(after[0], before[0]);
  EXPECT_EQ(after[1], before[1]);
}

}  // namespace
}  // namespace shunt::graph
