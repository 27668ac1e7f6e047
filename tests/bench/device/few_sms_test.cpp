// Least number of multiprocessors for ranks that wait for each other.
#include "bench/device/few_sms.hpp"

#include <gtest/gtest.h>

namespace shunt::bench {
namespace {

TEST(LeastSms, HoldsAllWaitingRanks) {
  EXPECT_EQ(least_sms(1, kMostThreads, 2048), 1);
  EXPECT_EQ(least_sms(2, kMostThreads, 2048), 1);
  EXPECT_EQ(least_sms(8, kPlanThreads, 2048), 4);
  EXPECT_EQ(least_sms(8, kMostThreads, 2048), 7);
  EXPECT_EQ(least_sms(8, kPlanThreads, 1536), 7);
}

TEST(LeastSms, LeavesRoomForTheWorkingRank) {
  for (const std::int32_t threads_per_sm : {1536, 2048})
    for (std::int32_t ranks = 1; ranks <= 32; ++ranks) {
      const std::int32_t sms = least_sms(ranks, kPlanThreads, threads_per_sm);
      const std::int32_t waiters_per_sm = (ranks - 1 + sms - 1) / sms;
      EXPECT_LE(waiters_per_sm * kPlanThreads + kMostThreads, threads_per_sm) << ranks;
    }
}

}  // namespace
}  // namespace shunt::bench
