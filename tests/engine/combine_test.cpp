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

TEST(Combine, KeepsTheSignOfALoneZero) {
  World::spawn(1, [](World& world) {
    Engine engine(world, one_float());
    const std::vector<std::int32_t> experts = {0};
    const Plan plan = engine.plan({experts, {}, 1}, ExpertMap::contiguous(1, 1));
    const float zero = -0.0f;
    const Tensor out = engine.combine(plan, borrow(&zero, f32, 1, 1)).wait();
    EXPECT_TRUE(std::signbit(out.as<float>()[0])) << "a sum starts from its first term, not from +0";
  });
}

TEST(Combine, GivesZerosToATokenWithoutRows) {
  World::spawn(2, [](World& world) {
    Engine engine(world, {.hidden = 3, .dtype = f32});
    const std::vector<std::int32_t> experts = {-1, 0};
    const Plan plan = engine.plan({experts, {}, 1}, ExpertMap::contiguous(1, 2));
    const Tensor expert_out = engine.expert_out(plan);
    std::ranges::fill(expert_out.as<float>(), 5.0f);
    std::vector<float> out(6, -1.0f);
    (void)engine.combine(plan, expert_out, {.out = borrow(out.data(), f32, 2, 3)}).wait();
    EXPECT_THAT(out, ElementsAre(0, 0, 0, 5, 5, 5));
  });
}

TEST(Combine, NeedsNoCopyOfTheBufferThatTheEngineGives) {
  World::spawn(2, [](World& world) {
    Engine engine(world, {.hidden = 1024, .dtype = f32});
    const std::vector<std::int32_t> experts = {0, 1};
    const Plan plan = engine.plan({experts, {}, 2}, ExpertMap::contiguous(2, 2));
    const Tensor expert_out = engine.expert_out(plan);
    std::ranges::fill(expert_out.as<float>(), 1.0f);
    std::vector<float> out(1024);
    const std::size_t before = world.live_bytes();
    auto ticket = engine.combine(plan, expert_out, {.out = borrow(out.data(), f32, 1, 1024)});
    EXPECT_EQ(world.live_bytes(), before);
    (void)ticket.wait();
    EXPECT_THAT(out, Each(2.0f));
  });
}

TEST(CombineBackward, GivesDroppedEntriesNoGradient) {
  World::spawn(2, [](World& world) {
    Engine engine(world, {.hidden = 2, .dtype = f32});
    const std::vector<std::int32_t> experts = {1, -1, 0};
    const std::vector<float> weights = {0.5f, 3.0f, 0.25f};
    const Plan plan = engine.plan({experts, weights, 3}, ExpertMap::contiguous(2, 2));
    const Tensor expert_out = engine.expert_out(plan);
    std::ranges::fill(expert_out.as<float>(), static_cast<float>(1 + world.rank().value));
    const std::vector<float> grad_out = {4, 8};
    const auto gradients =
        engine.combine_backward(plan, borrow(static_cast<const void*>(grad_out.data()), f32, 1, 2), expert_out).wait();
    EXPECT_THAT(gradients.weights.as<float>(), ElementsAre(24, 0, 12));
    const float weight = world.rank() == RankId(0) ? 0.25f : 0.5f;
    EXPECT_THAT(gradients.rows.as<float>(), ElementsAre(4 * weight, 8 * weight, 4 * weight, 8 * weight));
  });
}

TEST(DispatchBackward, IgnoresTheWeights) {
  World::spawn(2, [](World& world) {
    Engine engine(world, {.hidden = 1, .dtype = f32});
    const std::vector<std::int32_t> experts = {0, 1};
    const std::vector<float> weights = {0.5f, 0.25f};
    const Plan plan = engine.plan({experts, weights, 2}, ExpertMap::contiguous(2, 2));
    const Tensor grad_rows = engine.expert_out(plan);
    std::ranges::fill(grad_rows.as<float>(), 3.0f);
    EXPECT_THAT(engine.dispatch_backward(plan, grad_rows).wait().as<float>(), ElementsAre(6.0f));
  });
}

}  // namespace
}  // namespace shunt::test
