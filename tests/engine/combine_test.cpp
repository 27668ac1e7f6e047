#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "shunt/engine.hpp"

namespace shunt::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr float kHuge = 0x1p24f;  // kHuge + 1 is kHuge

// Four ranks, an expert on each; rank 0 has a token for all of them, and expert e answers with answers[e]. What rank 0
// gets.
float combine_on_rank_0(const std::vector<float>& answers, const EngineOptions& options, std::int32_t num_nodes,
                        const ExpertMap& map = ExpertMap::contiguous(4, 4)) {
  float result = 0;
  const auto body = [&](World& world) {
    Engine engine(world, options);
    const std::vector<std::int32_t> experts = world.rank() == RankId(0) ? std::vector{0, 1, 2, 3} : std::vector<int>{};
    const Plan plan = engine.plan({experts, {}, 4}, map);
    Tensor expert_out = engine.expert_out(plan);
    const std::size_t first = map.first_physical(world.rank()).index();
    for (std::size_t i = 0; i < expert_out.as<float>().size(); ++i)
      expert_out.as<float>()[i] = answers[map.logical(PhysicalId(first + i)).index()];
    const Tensor out = engine.combine(plan, expert_out).wait();
    if (world.rank() == RankId(0)) result = out.as<float>()[0];
  };
  World::spawn(4, body, {.topology = Topology::virtual_nodes(4, num_nodes)});
  return result;
}

EngineOptions one_float(Reduction reduction = Reduction::tree, DType wire = f32) {
  return {.hidden = 1, .dtype = f32, .wire_dtype = wire, .reduction = reduction};
}

ExpertMap reversed_map() {
  return ExpertMap::from_placement(4, {{ExpertId(3)}, {ExpertId(2)}, {ExpertId(1)}, {ExpertId(0)}});
}

TEST(Combine, SumsNodesApart) {
  const std::vector<float> answers = {kHuge, 1, 1, -kHuge};
  EXPECT_EQ(combine_on_rank_0(answers, one_float(), 1), 0.0f) << "((huge + 1) + 1) − huge";
  EXPECT_EQ(combine_on_rank_0(answers, one_float(), 2), 1.0f) << "(huge + 1) + (1 − huge)";
}

TEST(Combine, SumsRanksApart) {
  const std::vector<float> answers = {kHuge, 1, 1, -kHuge};
  const auto two_ranks = ExpertMap::from_placement(4, {{ExpertId(0), ExpertId(1)}, {ExpertId(2), ExpertId(3)}, {}, {}});
  EXPECT_EQ(combine_on_rank_0(answers, one_float(), 1, two_ranks), 1.0f) << "(huge + 1) + (1 − huge)";
}

TEST(Combine, RoundsToTheWireWhatComesFromOtherNodesAlone) {
  const std::vector<float> answers = {1, 0x1p-10f, 1, 0x1p-10f};  // bf16(1 + 2^-10) is 1
  EXPECT_EQ(combine_on_rank_0(answers, one_float(Reduction::tree, bf16), 1), 2 + 0x1p-9f);
  EXPECT_EQ(combine_on_rank_0(answers, one_float(Reduction::tree, bf16), 2), 2 + 0x1p-10f);
  EXPECT_EQ(combine_on_rank_0(answers, one_float(Reduction::tree, f32), 2), 2 + 0x1p-9f);
}

TEST(Combine, WhenFlatIgnoresNodesAndMap) {
  const std::vector<float> answers = {kHuge, 1, 1, -kHuge};
  for (const std::int32_t num_nodes : {1, 2, 4}) {
    EXPECT_EQ(combine_on_rank_0(answers, one_float(Reduction::flat, bf16), num_nodes), 0.0f);
    EXPECT_EQ(combine_on_rank_0(answers, one_float(Reduction::flat, bf16), num_nodes, reversed_map()), 0.0f);
  }
  const std::vector<float> ascending = {-kHuge, 1, 1, kHuge};
  EXPECT_EQ(combine_on_rank_0(ascending, one_float(Reduction::flat), 1, reversed_map()), 2.0f);
  EXPECT_EQ(combine_on_rank_0(ascending, one_float(Reduction::tree), 1, reversed_map()), 0.0f) << "follows the ranks";
}

/// A plan of one rank's tokens, and expert outputs that are all equal.
struct Answered {
  Answered(World& world, std::int64_t hidden, const Routing& routing, std::int32_t num_experts, float answer)
      : engine(world, {.hidden = hidden, .dtype = f32}),
        plan(engine.plan(routing, ExpertMap::contiguous(num_experts, world.size()))),
        rows(engine.expert_out(plan)) {
    std::ranges::fill(rows.as<float>(), answer);
  }

  Engine engine;
  Plan plan;
  Tensor rows;
};

TEST(Combine, KeepsTheSignOfALoneZero) {
  World::spawn(1, [](World& world) {
    const std::vector<std::int32_t> experts = {0};
    Answered rank(world, 1, {experts, {}, 1}, 1, -0.0f);
    const Tensor out = rank.engine.combine(rank.plan, rank.rows).wait();
    EXPECT_TRUE(std::signbit(out.as<float>()[0])) << "a sum starts from its first term, not from +0";
  });
}

TEST(Combine, GivesZerosToATokenWithoutRows) {
  World::spawn(2, [](World& world) {
    const std::vector<std::int32_t> experts = {-1, 0};
    Answered rank(world, 3, {experts, {}, 1}, 1, 5.0f);
    std::vector<float> out(6, -1.0f);
    (void)rank.engine.combine(rank.plan, rank.rows, {.out = borrow(out.data(), f32, 2, 3)}).wait();
    EXPECT_THAT(out, ElementsAre(0, 0, 0, 5, 5, 5));
  });
}

TEST(Combine, NeedsNoCopyOfTheBufferThatTheEngineGives) {
  World::spawn(2, [](World& world) {
    const std::vector<std::int32_t> experts = {0, 1};
    Answered rank(world, 1024, {experts, {}, 2}, 2, 1.0f);
    std::vector<float> out(1024);
    const std::size_t before = world.live_bytes();
    auto ticket = rank.engine.combine(rank.plan, rank.rows, {.out = borrow(out.data(), f32, 1, 1024)});
    EXPECT_EQ(world.live_bytes(), before);
    (void)ticket.wait();
    EXPECT_THAT(out, Each(2.0f));
  });
}

TEST(CombineBackward, GivesDroppedEntriesNoGradient) {
  World::spawn(2, [](World& world) {
    const std::vector<std::int32_t> experts = {1, -1, 0};
    const std::vector<float> weights = {0.5f, 3.0f, 0.25f};
    Answered rank(world, 2, {experts, weights, 3}, 2, static_cast<float>(1 + world.rank().value));
    const std::vector<float> grad_out = {4, 8};
    const ConstTensor grad = borrow(static_cast<const void*>(grad_out.data()), f32, 1, 2);
    const auto gradients = rank.engine.combine_backward(rank.plan, grad, rank.rows).wait();
    EXPECT_THAT(gradients.weights.as<float>(), ElementsAre(24, 0, 12));
    const float weight = world.rank() == RankId(0) ? 0.25f : 0.5f;
    EXPECT_THAT(gradients.rows.as<float>(), ElementsAre(4 * weight, 8 * weight, 4 * weight, 8 * weight));
  });
}

TEST(DispatchBackward, IgnoresTheWeights) {
  World::spawn(2, [](World& world) {
    const std::vector<std::int32_t> experts = {0, 1};
    const std::vector<float> weights = {0.5f, 0.25f};
    Answered rank(world, 1, {experts, weights, 2}, 2, 3.0f);
    EXPECT_THAT(rank.engine.dispatch_backward(rank.plan, rank.rows).wait().as<float>(), ElementsAre(6.0f));
  });
}

}  // namespace
}  // namespace shunt::test
