// What sums are, by hand; how they depend on routings, layouts and dtypes is in shuffle_test.cpp.
#include <gtest/gtest.h>

#include "engine/to_everyone.hpp"

namespace shunt::test {
namespace {

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

TEST(Combine, NeedsNoCopyOfTheBufferThatTheEngineGives) {
  World::spawn(2, [](World& world) {
    ToEveryone shuffle(world);
    const Tensor rows = shuffle.answers(1), out = shuffle.token(0);
    const std::size_t before = world.live_bytes();
    auto ticket = shuffle.engine().combine(shuffle.plan(), rows, {.out = out});
    EXPECT_EQ(world.live_bytes(), before);
    EXPECT_TRUE(shuffle.is_sum_of_answers(ticket.wait(), 1));
  });
}

}  // namespace
}  // namespace shunt::test
