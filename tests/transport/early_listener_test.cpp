#include "transport/far/early_listener.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace shunt::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(EarlyListener, RemembersTheFirstFaultAndPassesItOn) {
  far::EarlyListener early(RankId(3));
  const FarLink::Listener of_link = early.listener();
  of_link.on_arrival();
  EXPECT_FALSE(early.fault());
  of_link.on_fault(ErrorCode::peer_lost, RankId(2), "rank 2 ended");
  of_link.on_fault(ErrorCode::peer_lost, RankId(1), "rank 1 left");
  ASSERT_TRUE(early.fault());
  EXPECT_EQ(early.fault()->code, ErrorCode::peer_lost);
  EXPECT_EQ(early.fault()->culprit, RankId(2));
  EXPECT_EQ(early.fault()->text, "rank 2 ended");

  std::vector<std::string> told;
  int num_arrivals = 0;
  early.pass_on_to({.on_arrival = [&] { ++num_arrivals; },
                    .on_fault = [&](ErrorCode, RankId, const std::string& text) { told.push_back(text); }});
  EXPECT_THAT(told, ElementsAre("rank 2 ended"));
  EXPECT_EQ(num_arrivals, 1);  // something may have come before
  of_link.on_fault(ErrorCode::peer_lost, RankId(1), "rank 1 left");
  of_link.on_arrival();
  EXPECT_THAT(told, ElementsAre("rank 2 ended", "rank 1 left"));
  EXPECT_EQ(num_arrivals, 2);
}

TEST(EarlyListener, PassesOnNoFaultWhereThereIsNone) {
  far::EarlyListener early(RankId(0));
  std::vector<std::string> told;
  early.pass_on_to(
      {.on_arrival = [] {}, .on_fault = [&](ErrorCode, RankId, const std::string& text) { told.push_back(text); }});
  EXPECT_THAT(told, IsEmpty());
}

}  // namespace
}  // namespace shunt::test
