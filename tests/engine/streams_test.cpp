// A stream from a far rank that does not keep to what was agreed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "core/fail.hpp"
#include "engine/segments.hpp"

namespace shunt::test {
namespace {

using ::testing::HasSubstr;

constexpr StreamLimits kLimits = {.slice_bytes = 64, .depth = 2};

class CountingLink final : public SliceLink {
 public:
  std::optional<OutSlice> open(std::size_t) override { return std::nullopt; }
  void post(RankId, OutSlice, std::size_t, const SliceTag&) override {}
  bool poll(InSlice&) override { return false; }
  void expect(RankId peer, std::int64_t num_slices, std::size_t bytes_each) override {
    num_expected[peer] += num_slices;
    EXPECT_EQ(bytes_each, kLimits.slice_bytes);
  }

  std::map<RankId, std::int64_t> num_expected;
};

/// Ranks 0 and 1 of a world that are ranks 3 and 5 of the transport, on two hosts. This is rank 0.
class StreamFromFar : public ::testing::Test {
 protected:
  static constexpr RankId kFar{1};
  static constexpr RankId kFarInTransport{5};

  StreamFromFar() { streams_.welcome(kFar); }

  void arrive(std::size_t bytes, std::uint32_t index, bool is_last, RankId from = kFarInTransport) {
    const auto buffer = std::make_shared<std::vector<std::byte>>(bytes);
    streams_.arrive({from, {0, 0, index, is_last}, *buffer, buffer});
  }
  static void expect_blamed(RankId culprit, const std::string& text, const std::function<void()>& act) {
    try {
      act();
      FAIL() << "nobody was blamed, expected: " << text;
    } catch (const PeerError& error) {
      EXPECT_EQ(error.culprit(), culprit);
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  }

  CountingLink link_;
  Group group_{.members = {RankId(3), kFarInTransport},
               .wiring = {{HostId(0), HostId(1)}, {NicId(0), NicId(1)}},
               .self = RankId(0)};
  Operation::Key key_;
  std::vector<Arrivals::Peer> arrivals_ = std::vector<Arrivals::Peer>(6);
  std::atomic<std::uint64_t> num_bytes_sent_{0};
  Streams streams_{link_, group_, key_, arrivals_, kLimits, num_bytes_sent_, [](RankId, std::uint32_t, std::size_t) {}};
  SegmentReader reader_{streams_, kFar};
};

TEST_F(StreamFromFar, ThatIsTooLongIsItsSendersFault) {
  arrive(10, 0, true);
  ASSERT_TRUE(reader_.front(8));
  reader_.pop();
  expect_blamed(kFarInTransport, "rank 1 sent more than was agreed", [&] { reader_.finish(); });
}

TEST_F(StreamFromFar, ThatIsTooShortIsItsSendersFault) {
  arrive(10, 0, true);
  expect_blamed(kFarInTransport, "rank 1 sent less than was agreed", [&] { (void)reader_.front(16); });
}

TEST_F(StreamFromFar, OfARankOutsideTheWorldIsThatRanksFault) {
  expect_blamed(RankId(4), "rank 4 sent a slice", [&] { arrive(1, 0, true, RankId(4)); });
}

TEST(StreamLimits, GiveFewPeersDeepStreamsAndManyEnough) {
  const StreamLimits by_peers{.slice_bytes = 64, .depth = 0};
  EXPECT_EQ(by_peers.depth_for(1), 16u);
  EXPECT_EQ(by_peers.depth_for(2), 16u);
  EXPECT_EQ(by_peers.depth_for(6), 5u);
  EXPECT_EQ(by_peers.depth_for(1000), 4u);
  const StreamLimits fixed{.slice_bytes = 64, .depth = 2};
  EXPECT_EQ(fixed.depth_for(1), 2u);
}

TEST_F(StreamFromFar, OfARankThatWasNotWelcomeIsThatRanksFault) {
  group_.members.push_back(RankId(2));
  group_.wiring.add(HostId(1), NicId(1));
  Streams streams{link_, group_, key_, arrivals_, kLimits, num_bytes_sent_, {}};
  expect_blamed(RankId(2), "rank 2 sent rank 0 slice #0", [&] { streams.arrive({RankId(2), {}, {}, nullptr}); });
}

TEST_F(StreamFromFar, IsExpectedSliceBySliceAndNoLongerThanItLasts) {
  EXPECT_EQ(link_.num_expected[kFarInTransport], 2);
  arrive(8, 0, false);
  arrive(8, 1, false);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(reader_.front(8));
    reader_.pop();
  }
  EXPECT_EQ(link_.num_expected[kFarInTransport], 4);
  arrive(0, 2, true);
  EXPECT_TRUE(reader_.finish());
  streams_.close();
  EXPECT_EQ(link_.num_expected[kFarInTransport], 3) << "as many as have come";
}

}  // namespace
}  // namespace shunt::test
