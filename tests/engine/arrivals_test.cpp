#include "engine/arrivals.hpp"

#include <gtest/gtest.h>

namespace shunt::test {
namespace {

constexpr RankId kFar(1);
constexpr std::int32_t kMost = Arrivals::kMostPending;

Operation::Key key(std::int32_t sequence, std::uint64_t engine = 7) {
  return {engine, static_cast<std::uint32_t>(sequence)};
}

/// An operation in which this rank sends the far one `num_slices`, and is granted `num_grants` for those it has read.
std::optional<RankId> run(Arrivals& arrivals, const Operation::Key& of, std::uint32_t num_slices,
                          std::uint32_t num_grants) {
  auto& far = arrivals.of(of)[kFar.index()];
  EXPECT_TRUE(far.grant(4, 64));
  far.num_posted = num_slices;
  far.has_posted_last = num_slices > 0;
  for (std::uint32_t i = 0; i < num_grants; ++i) EXPECT_TRUE(far.grant(1, 64));
  return arrivals.complete(of, std::span(&kFar, 1));
}

TEST(Arrivals, RememberNothingOfOperationsThatAreOver) {
  Arrivals arrivals(2);
  for (std::uint64_t engine = 0; engine < 100; ++engine) EXPECT_FALSE(run(arrivals, key(0, engine), 3, 2));
  EXPECT_EQ(arrivals.num_operations(), 0u);
}

TEST(Arrivals, WaitForTheLastGrantsOfAnOperation) {
  Arrivals arrivals(2);
  run(arrivals, key(0), 3, 0);
  for (int left = 2; left > 0; --left) {
    EXPECT_EQ(arrivals.num_operations(), 1u);
    Arrivals::Peer* const far = arrivals.hear(kFar, key(0));
    ASSERT_TRUE(far);
    EXPECT_TRUE(far->grant(1, 64));
    arrivals.settle(key(0));
  }
  EXPECT_EQ(arrivals.num_operations(), 0u);
}

TEST(Arrivals, NameAPartnerThatOwesTooMany) {
  Arrivals arrivals(2);
  for (std::int32_t i = 0; i < kMost; ++i) EXPECT_FALSE(run(arrivals, key(i), 2, 0));
  EXPECT_EQ(run(arrivals, key(kMost), 2, 0), kFar);
}

TEST(Arrivals, HearOfNoMoreOperationsThanARankCanHaveUnderWay) {
  Arrivals arrivals(2);
  for (std::int32_t i = 0; i < kMost; ++i) EXPECT_TRUE(arrivals.hear(kFar, key(i)));
  EXPECT_TRUE(arrivals.hear(kFar, key(0))) << "of those, as often as it likes";
  EXPECT_FALSE(arrivals.hear(kFar, key(kMost)));
  EXPECT_EQ(arrivals.num_operations(), static_cast<std::size_t>(kMost));
  EXPECT_TRUE(arrivals.hear(RankId(0), key(kMost))) << "another rank may";

  (void)arrivals.of(key(3));
  EXPECT_TRUE(arrivals.hear(kFar, key(kMost))) << "this rank has issued one of them";
}

TEST(Arrivals, TakeNoGrantBeyondWhatWasSent) {
  Arrivals::Peer far;
  EXPECT_TRUE(far.grant(4, 64));
  EXPECT_FALSE(far.grant(1, 64));
  far.num_posted = 2;
  EXPECT_FALSE(far.grant(3, 64));
  EXPECT_TRUE(far.grant(2, 64));
  far.num_posted = 3;
  far.has_posted_last = true;
  EXPECT_FALSE(far.grant(1, 64));
  EXPECT_TRUE(far.has_granted_all());
}

}  // namespace
}  // namespace shunt::test
