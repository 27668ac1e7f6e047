#include "plan/request.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "plan/planner.hpp"
#include "shunt/error.hpp"

namespace shunt {
namespace {

using ::testing::HasSubstr;

struct Request {
  std::vector<std::int32_t> experts{0, 1, 2, 3};
  std::vector<float> weights{};
  std::int32_t topk = 2;
  PlanOptions options{};
  ExpertMap map = ExpertMap::contiguous(4, 2);
};

std::string refusal(const Request& request) {
  const Topology topology = Topology::single_node(2);
  try {
    Planner(Routing{request.experts, request.weights, request.topk}, request.map, topology, RankId(1), request.options,
            EngineShape{});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("plan: rank 1"));
    return error.what();
  }
  return "accepted";
}

TEST(PlanRequest, AcceptsAValidOne) { EXPECT_EQ(refusal({}), "accepted"); }

TEST(PlanRequest, TopKIsBounded) {
  EXPECT_THAT(refusal({.topk = 0}), HasSubstr("topk is 0, expected 1 to 64"));
  EXPECT_THAT(refusal({.experts = std::vector<std::int32_t>(65, -1), .topk = 65}), HasSubstr("topk is 65"));
}

TEST(PlanRequest, UnusedOptionsAreCheckedToo) {
  EXPECT_THAT(refusal({.options = {.layout = Layout(9)}}), HasSubstr("layout 9 does not exist"));
  EXPECT_THAT(refusal({.options = {.max_tokens = -1}}), HasSubstr("max_tokens is -1, expected 0 or more"));
}

TEST(PlanRequest, EveryTokenHasTopKEntries) {
  EXPECT_THAT(refusal({.topk = 3}), HasSubstr("4 experts, not a multiple of topk 3"));
}

TEST(PlanRequest, WeightsMatchExperts) {
  EXPECT_THAT(refusal({.weights = {1, 1, 1}}), HasSubstr("3 weights for 4 experts"));
}

TEST(PlanRequest, ExpertsAreInRange) {
  EXPECT_THAT(refusal({.experts = {0, 1, 2, 4}}), HasSubstr("token 1: expert 4 is out of range, expected -1 to 3"));
  EXPECT_THAT(refusal({.experts = {0, -2, 2, 3}}), HasSubstr("token 0: expert -2 is out of range"));
}

TEST(PlanRequest, TokenNamesAnExpertOnce) {
  EXPECT_THAT(refusal({.experts = {0, 1, 3, 3}}), HasSubstr("token 1: expert 3 is named twice"));
  EXPECT_EQ(refusal({.experts = {-1, -1, 3, 2}}), "accepted") << "drops may repeat";
}

TEST(PlanRequest, WeightsAreFinite) {
  const float nan = std::nanf("");
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(refusal({.weights = {1, nan, 1, 1}}), HasSubstr("token 0: the weight of expert 1 is nan"));
  EXPECT_THAT(refusal({.weights = {1, 1, -infinity, 1}}), HasSubstr("token 1: the weight of expert 2 is -inf"));
  EXPECT_EQ(refusal({.experts = {0, -1, 2, 3}, .weights = {1, nan, 1, 1}}), "accepted") << "a drop's weight is ignored";
}

TEST(PlanRequest, MapFitsTheTopology) {
  EXPECT_THAT(refusal({.map = ExpertMap::contiguous(4, 3)}),
              HasSubstr("the expert map is for 3 ranks, the topology for 2"));
}

TEST(PlanRequest, AlignmentAndCapacityArePositive) {
  EXPECT_THAT(refusal({.options = {.alignment = 0}}), HasSubstr("alignment is 0, expected at least 1"));
  EXPECT_THAT(refusal({.options = {.capacity = 0}}), HasSubstr("capacity is 0, expected at least 1"));
}

TEST(PlanRequest, PaddedHoldsAllTokens) {
  EXPECT_THAT(refusal({.options = {.layout = Layout::padded, .max_tokens = 1}}),
              HasSubstr("max_tokens is 1, expected at least 2"));
  EXPECT_THAT(refusal({.experts = {}, .options = {.layout = Layout::padded, .max_tokens = 0}}),
              HasSubstr("max_tokens is 0, expected at least 1"));
  EXPECT_EQ(refusal({.options = {.layout = Layout::padded, .max_tokens = 2}}), "accepted");
}

TEST(PlanRequest, PaddedTakesNoCapacity) {
  EXPECT_THAT(refusal({.options = {.layout = Layout::padded, .capacity = 3, .max_tokens = 2}}),
              HasSubstr("capacity 3 with layout padded"));
}

TEST(PlanRequest, PaddedBlocksKeepTheAlignment) {
  EXPECT_THAT(refusal({.options = {.layout = Layout::padded, .alignment = 8, .max_tokens = 2}}),
              HasSubstr("no multiple of alignment 8"));
  EXPECT_EQ(refusal({.options = {.layout = Layout::padded, .alignment = 8, .max_tokens = 4}}), "accepted");
}

TEST(PlanRequest, RowsOfARankFit32Bits) {
  const auto most = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(refusal({.options = {.layout = Layout::padded, .max_tokens = most}}), HasSubstr("more than 2147483647"));
  EXPECT_THAT(refusal({.options = {.layout = Layout::padded, .max_tokens = 1 << 30}}), HasSubstr("more than"));
}

TEST(PlanRequest, AlignedRowsOfARankFit32Bits) {
  const std::vector<std::int32_t> experts{0, 1};
  const ExpertMap map = ExpertMap::contiguous(2, 1);
  const Topology topology = Topology::single_node(1);
  Planner planner(Routing{experts, {}, 2}, map, topology, RankId(0), {.alignment = 1 << 30}, EngineShape{});
  const std::span<const std::byte> own = planner.proposal();
  planner.accept({&own, 1});
  EXPECT_THROW((void)planner.finish(), Error);
}

}  // namespace
}  // namespace shunt
