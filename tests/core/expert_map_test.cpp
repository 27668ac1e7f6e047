#include "shunt/expert_map.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shunt/error.hpp"

namespace shunt {
namespace {

TEST(ExpertMap, ContiguousSpreadsCountsThatDontDivide) {
  const ExpertMap map = ExpertMap::contiguous(10, 4);
  EXPECT_EQ(map.num_local(RankId(0)), 3);
  EXPECT_EQ(map.num_local(RankId(1)), 3);
  EXPECT_EQ(map.num_local(RankId(2)), 2);
  EXPECT_EQ(map.num_local(RankId(3)), 2);
  EXPECT_FALSE(map.has_replicas());
}

TEST(ExpertMap, MoreRanksThanExpertsLeavesRanksEmpty) {
  const ExpertMap map = ExpertMap::contiguous(2, 7);
  EXPECT_EQ(map.num_local(RankId(1)), 1);
  EXPECT_EQ(map.num_local(RankId(2)), 0);
}

TEST(ExpertMap, LocalExpertsAscendWhateverTheOrderGiven) {
  const ExpertMap map = ExpertMap::from_placement(3, {{ExpertId(2), ExpertId(0)}, {ExpertId(1)}});
  EXPECT_EQ(map.logical(PhysicalId(0)), ExpertId(0));
  EXPECT_EQ(map.logical(PhysicalId(1)), ExpertId(2));
  EXPECT_EQ(map.rank(PhysicalId(2)), RankId(1));
}

TEST(ExpertMap, IsWrittenWithPlainNumbers) {
  const ExpertMap map = ExpertMap::from_placement(4, {{0, 1}, {3, 2}});
  EXPECT_EQ(map.hash(), ExpertMap::contiguous(4, 2).hash());
  EXPECT_EQ(ExpertMap::from_placement(2, {{0}, {1}}).hash(), ExpertMap::contiguous(2, 2).hash());
  EXPECT_EQ(ExpertMap::from_placement(1, {{0}, {}}).hash(), ExpertMap::contiguous(1, 2).hash());
}

TEST(ExpertMap, SharesFollowTheirExperts) {
  const ExpertMap map = ExpertMap::from_placement(3, {{2, 0}, {2, 1}}, {{5, 1}, {3, 65535}});
  EXPECT_EQ(map.share(PhysicalId(0)), 1);
  EXPECT_EQ(map.share(PhysicalId(1)), 5);
  EXPECT_EQ(map.share(PhysicalId(2)), 65535);
  EXPECT_EQ(map.share(PhysicalId(3)), 3);
  EXPECT_EQ(ExpertMap::contiguous(2, 1).share(PhysicalId(1)), 1);
}

TEST(ExpertMap, NamesWhatIsWrong) {
  const auto message = [](std::int32_t experts, const std::vector<std::vector<ExpertId>>& placement,
                          const ExpertMap::Shares& shares = {}) -> std::string {
    try {
      ExpertMap::from_placement(experts, placement, shares);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message(2, {{ExpertId(0)}}), testing::HasSubstr("expert 1 is on no rank"));
  EXPECT_THAT(message(1, {{ExpertId(0), ExpertId(0)}}), testing::HasSubstr("expert 0 twice"));
  EXPECT_THAT(message(1, {{ExpertId(0)}, {ExpertId(1)}}), testing::HasSubstr("rank 1 lists expert 1"));
  EXPECT_THAT(message(1, {{ExpertId(0)}, {}}, {{1}}), testing::HasSubstr("shares for 1 ranks, but a placement on 2"));
  EXPECT_THAT(message(1, {{ExpertId(0)}, {}}, {{1}, {1}}), testing::HasSubstr("rank 1 lists 0 experts, but 1 shares"));
  EXPECT_THAT(message(1, {{ExpertId(0)}}, {{0}}), testing::HasSubstr("rank 0: the share of expert 0 is 0"));
  EXPECT_THAT(message(1, {{ExpertId(0)}}, {{65536}}), testing::HasSubstr("is 65536, expected 1 to 65535"));
}

TEST(ExpertMap, OfSomeRanksKeepsTheirCopies) {
  const ExpertMap map = ExpertMap::from_placement(3, {{0, 1}, {2}, {1, 2}, {0}}, {{1, 1}, {1}, {4, 2}, {3}});
  EXPECT_TRUE(map.has_replicas());
  const std::vector<RankId> some = {RankId(2), RankId(3)};
  const auto expected = ExpertMap::from_placement(3, {{1, 2}, {0}}, {{4, 2}, {3}});
  EXPECT_EQ(map.restricted_to(some).hash(), expected.hash());
  const std::vector<RankId> too_few = {RankId(0), RankId(3)};
  EXPECT_THROW((void)map.restricted_to(too_few), Error);
  const std::vector<RankId> unknown = {RankId(0), RankId(4)};
  EXPECT_THROW((void)map.restricted_to(unknown), Error);
}

TEST(ExpertMap, HashDistinguishesMaps) {
  EXPECT_EQ(ExpertMap::contiguous(8, 2).hash(), ExpertMap::contiguous(8, 2).hash());
  EXPECT_NE(ExpertMap::contiguous(8, 2).hash(), ExpertMap::contiguous(8, 4).hash());
  EXPECT_NE(ExpertMap::contiguous(2, 2).hash(), ExpertMap::from_placement(2, {{1}, {0}}).hash());
  EXPECT_NE(ExpertMap::from_placement(1, {{0}, {0}}, {{1}, {2}}).hash(),
            ExpertMap::from_placement(1, {{0}, {0}}, {{2}, {1}}).hash());
}

}  // namespace
}  // namespace shunt
