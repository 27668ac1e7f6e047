#include "plan/agreement.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "shunt/error.hpp"
#include "support/plan_ranks.hpp"

namespace shunt {
namespace {

using ::testing::HasSubstr;

struct Bring {
  EngineShape shape{.hidden = 2048};
  std::int32_t topk = 1;
  PlanOptions options{};
  ExpertMap map = ExpertMap::contiguous(4, 2);
  Topology topology = Topology::single_node(2);
};

// Rank 0's error if rank 1 differs from the default.
std::string complaint(const Bring& theirs) {
  const Bring ours;
  const std::vector<std::int32_t> experts{0, 1};
  const Planner peer(Routing{experts, {}, theirs.topk}, theirs.map, theirs.topology, RankId(1), theirs.options,
                     theirs.shape);
  Planner self(Routing{experts, {}, ours.topk}, ours.map, ours.topology, RankId(0), ours.options, ours.shape);
  try {
    const std::vector<std::span<const std::byte>> proposals{self.proposal(), peer.proposal()};
    self.accept(proposals);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    return error.what();
  }
  return "agreed";
}

TEST(PlanAgreement, EqualRanksAgree) { EXPECT_EQ(complaint({}), "agreed"); }

TEST(PlanAgreement, MismatchNamesBothRanksAndValues) {
  EXPECT_EQ(complaint({.shape = {.hidden = 4096}}), "plan: rank 1 has hidden 4096, rank 0 has 2048");
}

TEST(PlanAgreement, EveryFieldIsCompared) {
  EXPECT_THAT(complaint({.shape = {.hidden = 2048, .dtype = f16}}), HasSubstr("rank 1 has dtype f16, rank 0 has bf16"));
  EXPECT_THAT(complaint({.shape = {.hidden = 2048, .expert_dtype = f32}}), HasSubstr("rank 1 has expert_dtype f32"));
  EXPECT_THAT(complaint({.shape = {.hidden = 2048, .result_dtype = f32}}), HasSubstr("rank 1 has result_dtype f32"));
  EXPECT_THAT(complaint({.shape = {.hidden = 2048, .wire_dtype = f32}}), HasSubstr("rank 1 has wire_dtype f32"));
  EXPECT_THAT(complaint({.shape = {.hidden = 2048, .flat = true}}),
              HasSubstr("rank 1 has reduction flat, rank 0 has tree"));
  EXPECT_THAT(complaint({.shape = {.hidden = 2048, .ids = true}}),
              HasSubstr("rank 1 has companion ids on, rank 0 has off"));
  EXPECT_THAT(complaint({.shape = {.hidden = 2048, .weights = true}}), HasSubstr("rank 1 has companion weights on"));
  EXPECT_THAT(complaint({.topk = 2}), HasSubstr("rank 1 has topk 2, rank 0 has 1"));
  EXPECT_THAT(complaint({.options = {.layout = Layout::token_unique}}),
              HasSubstr("rank 1 has layout token_unique, rank 0 has expert_major"));
  EXPECT_THAT(complaint({.options = {.alignment = 16}}), HasSubstr("rank 1 has alignment 16, rank 0 has 1"));
  EXPECT_THAT(complaint({.options = {.capacity = 9}}), HasSubstr("rank 1 has capacity 9, rank 0 has unlimited"));
  EXPECT_THAT(complaint({.options = {.max_tokens = 7}}), HasSubstr("rank 1 has max_tokens 7, rank 0 has 0"));
  EXPECT_THAT(complaint({.map = ExpertMap::contiguous(5, 2)}), HasSubstr("rank 1 has num_experts 5, rank 0 has 4"));
  EXPECT_THAT(
      complaint({.map = ExpertMap::from_placement(4, {{ExpertId(0), ExpertId(2)}, {ExpertId(1), ExpertId(3)}})}),
      HasSubstr("rank 1 has an expert map with hash 0x"));
  EXPECT_THAT(complaint({.topology = Topology::virtual_nodes(2, 2)}), HasSubstr("rank 1 has a topology with hash 0x"));
}

}  // namespace
}  // namespace shunt
