// The traffic with one far rank, honest or not, and what is kept of its operations.
#include "engine/slice_channel.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/fail.hpp"
#include "engine/operation_table.hpp"

namespace shunt::test {
namespace {

using ::testing::HasSubstr;

class CountingLink final : public SliceLink {
 public:
  std::optional<OutSlice> open(std::size_t) override { return std::nullopt; }
  void post(RankId, OutSlice, std::size_t, const SliceTag&) override { ++num_posted; }
  bool poll(InSlice&) override { return false; }
  void expect(RankId peer, std::int64_t num_slices, std::size_t) override {
    EXPECT_EQ(peer, RankId(5));
    num_expected += num_slices;
  }

  int num_posted = 0;
  std::int64_t num_expected = 0;
};

/// Rank 1 of a world, rank 5 of the transport, grants and is granted slices of 64 bytes.
class SliceChannelTest : public ::testing::Test {
 protected:
  SliceChannelTest() { channel_.open(shared_, RankId(1), RankId(5)); }

  void arrive(std::size_t bytes, std::uint32_t index, bool is_last) {
    const auto buffer = std::make_shared<std::vector<std::byte>>(bytes);
    channel_.arrive({RankId(5), {0, 0, index, is_last}, *buffer, buffer});
  }
  static void expect_peer_error(const std::string& text, const std::function<void()>& act) {
    try {
      act();
      FAIL() << "no PeerError was thrown, expected: " << text;
    } catch (const PeerError& error) {
      EXPECT_EQ(error.culprit(), RankId(5));
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  }

  CountingLink link_;
  std::atomic<std::uint64_t> num_bytes_sent_{0};
  SliceChannel::Shared shared_{link_, {64, 2}, num_bytes_sent_, {}, RankId(0), [](RankId, std::uint32_t) {}};
  SliceChannel channel_;
};

TEST_F(SliceChannelTest, ReportsThePeerForSegmentsThatAreTooLong) {
  arrive(10, 0, true);
  ASSERT_TRUE(channel_.front(8));
  channel_.pop();
  expect_peer_error("rank 1 sent more than was agreed", [&] { channel_.finish_receiving(); });
}

TEST_F(SliceChannelTest, ReportsThePeerForSegmentsThatAreTooShort) {
  arrive(10, 0, true);
  expect_peer_error("rank 1 sent less than was agreed", [&] { (void)channel_.front(16); });
}

TEST_F(SliceChannelTest, ExpectsSliceAfterSliceAndNoLongerThanTheyLast) {
  EXPECT_EQ(link_.num_expected, 2);
  for (const std::uint32_t index : {0, 1}) arrive(8, index, false);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(channel_.front(8));
    channel_.pop();
  }
  EXPECT_EQ(link_.num_expected, 4);
  arrive(0, 2, true);
  EXPECT_TRUE(channel_.finish_receiving());
  channel_.close();
  EXPECT_EQ(link_.num_expected, 3) << "as many as have come";
}

TEST_F(SliceChannelTest, WaitsForAPeerUntilBothDirectionsHaveEnded) {
  EXPECT_FALSE(channel_.is_awaited()) << "nothing was agreed";
  channel_.begin_sending();
  channel_.begin_receiving();
  channel_.take_grant(1, 64);
  channel_.post_slice({}, 0, true);
  EXPECT_TRUE(channel_.is_awaited());
  arrive(8, 0, true);
  EXPECT_FALSE(channel_.is_awaited());
}

TEST_F(SliceChannelTest, DistinguishesAFullLinkFromAPeerWithoutRoom) {
  EXPECT_FALSE(channel_.open_slice());
  EXPECT_FALSE(shared_.link_was_full);
  channel_.take_grant(1, 64);
  EXPECT_FALSE(channel_.open_slice());
  EXPECT_TRUE(shared_.link_was_full);
}

TEST(SliceLimits, GiveFewPeersDeepRingsAndManyEnough) {
  const SliceLimits by_peers{.slice_bytes = 64, .depth = 0};
  EXPECT_EQ(by_peers.depth_for(1), 16u);
  EXPECT_EQ(by_peers.depth_for(2), 16u);
  EXPECT_EQ(by_peers.depth_for(6), 5u);
  EXPECT_EQ(by_peers.depth_for(1000), 4u);
  EXPECT_EQ((SliceLimits{.slice_bytes = 64, .depth = 2}.depth_for(1)), 2u);
}

/// Peers' operations, some of which this rank issues too.
class OperationTableTest : public SliceChannelTest {
 protected:
  static constexpr RankId kFar{1};
  static constexpr std::int32_t kMost = OperationTable::kMostKept;

  class Nothing final : public Operation {
   public:
    explicit Nothing(std::uint64_t engine) : Operation(std::make_shared<Group>(), engine, {}, {}) {}
    void begin(std::span<const Announcement>) override {}
  };

  static Operation::Key key(std::uint64_t engine) { return {engine, 0}; }
  /// An operation in which this rank sends the far one `num_slices`, and is granted `num_grants` for those it has read.
  std::optional<RankId> run(std::uint64_t engine, int num_slices, int num_grants) {
    OperationTable::Peer& far = table_.start(std::make_shared<Nothing>(engine)).peers[kFar];
    far.is_partner = true;
    far.channel = std::make_unique<SliceChannel>();
    far.channel->open(shared_, kFar, RankId(5));
    EXPECT_TRUE(far.channel->take_grant(4, 64));
    for (int i = 1; i <= num_slices; ++i) far.channel->post_slice({}, 0, i == num_slices);
    for (int i = 0; i < num_grants; ++i) EXPECT_TRUE(far.channel->take_grant(1, 64));
    return table_.complete(key(engine));
  }

  OperationTable table_{2};
};

TEST_F(OperationTableTest, KeepsNothingOfOperationsThatAreOver) {
  for (std::uint64_t engine = 0; engine < 100; ++engine) EXPECT_FALSE(run(engine, 3, 2));
  EXPECT_EQ(table_.size(), 0u);
}

TEST_F(OperationTableTest, WaitsForTheLastGrantsOfAnOperation) {
  run(0, 3, 0);
  for (int left = 2; left > 0; --left) {
    EXPECT_EQ(table_.size(), 1u);
    OperationTable::Entry* const over = table_.entry_for(kFar, key(0));
    ASSERT_TRUE(over);
    EXPECT_TRUE(over->peers[kFar].channel->take_grant(1, 64));
    table_.settle(key(0));
  }
  EXPECT_EQ(table_.size(), 0u);
}

TEST_F(OperationTableTest, NamesAPartnerThatOwesTooManyGrants) {
  for (int i = 0; i < kMost; ++i) EXPECT_FALSE(run(static_cast<std::uint64_t>(i), 2, 0));
  EXPECT_EQ(run(kMost, 2, 0), kFar);
}

TEST_F(OperationTableTest, KeepsNoMoreOfAPeersOperationsThanItCanHaveUnderWay) {
  for (int i = 0; i < kMost; ++i) EXPECT_TRUE(table_.entry_for(kFar, key(static_cast<std::uint64_t>(i))));
  EXPECT_TRUE(table_.entry_for(kFar, key(0))) << "of those, as often as it likes";
  EXPECT_FALSE(table_.entry_for(kFar, key(kMost)));
  EXPECT_EQ(table_.size(), static_cast<std::size_t>(kMost));
  EXPECT_TRUE(table_.entry_for(RankId(0), key(kMost))) << "another rank may";

  table_.start(std::make_shared<Nothing>(3));
  EXPECT_TRUE(table_.entry_for(kFar, key(kMost))) << "this rank has issued one of them";
}

TEST_F(OperationTableTest, ListsWhatIsUnderWayInTheOrderOfIssue) {
  for (const std::uint64_t engine : {9, 2, 5}) table_.start(std::make_shared<Nothing>(engine));
  table_.complete(key(2));
  (void)table_.entry_for(kFar, key(7));
  const auto live = table_.live();
  ASSERT_EQ(live.size(), 2u);
  EXPECT_EQ(live[0]->operation->key(), key(9));
  EXPECT_EQ(live[1]->operation->key(), key(5));
}

}  // namespace
}  // namespace shunt::test
