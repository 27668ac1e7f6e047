// A link and an authenticated peer that breaks the protocol, dies at a bad moment, or is slow; the end of a link, and
// of a rank of a world of several machines.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <functional>
#include <future>
#include <optional>
#include <thread>
#include <tuple>

#include "support/eventually.hpp"
#include "support/loopback_ranks.hpp"
#include "support/require.hpp"
#include "support/require_error.hpp"
#include "transport/hybrid/hybrid_transport.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr RankId kPeer(1);
constexpr int kMostUnread = 256;
constexpr std::size_t kSliceBytes = 4096;

class LinkWithPeer : public ::testing::TestWithParam<far::Network> {
 protected:
  void SetUp() override {
    if (!why_not(GetParam()).empty()) GTEST_SKIP() << why_not(GetParam());
    start(5000ms);
  }
  void start(std::chrono::milliseconds liveness) {
    TearDown();
    end_.reset();
    peer_.emplace(GetParam());
    end_.emplace(GetParam(), peer_->address(), liveness);
    peer_->connect(end_->address());
  }
  // The peer first, so that the link does not wait for it.
  void TearDown() override { peer_.reset(); }

  /// Makes progress until the condition holds; a guard against hangs only.
  void await(const std::function<bool()>& condition) {
    const auto guard = std::chrono::steady_clock::now() + 30s;
    while (!condition()) {
      peer_->progress();
      require(std::chrono::steady_clock::now() < guard, "waited in vain");
    }
  }
  void expect_violation(const std::string& sent) {
    await([&] { return end_->fault().has_value(); });
    const Fault fault = *end_->fault();
    EXPECT_EQ(fault.code, ErrorCode::mismatch);
    EXPECT_EQ(fault.culprit, kPeer);
    EXPECT_THAT(fault.text, HasSubstr("rank 1 sent rank 0 " + sent));
  }
  void connect() {
    peer_->send(RawPeer::Kind::ping);
    peer_->send(RawPeer::Kind::alive);
    end_->connect_all();
  }
  std::future<void> leave() {
    return std::async(std::launch::async, [this] { end_.reset(); });
  }
  static bool has_ended(const std::future<void>& leaving, std::chrono::milliseconds limit) {
    return leaving.wait_for(limit) == std::future_status::ready;
  }
  void send_slice(std::size_t bytes) { peer_->send(RawPeer::Kind::slice, std::vector<std::byte>(bytes)); }
  int poll_all_messages() {
    int count = 0;
    for (Message message; link().poll(message);) ++count;
    return count;
  }
  int poll_all_slices() {
    int count = 0;
    for (InSlice slice; link().slices().poll(slice);) ++count;
    return count;
  }
  far::Link& link() { return end_->link(); }

  std::optional<RawPeer> peer_;
  std::optional<LinkEnd> end_;
};

std::string name_of_network(const ::testing::TestParamInfo<far::Network>& info) { return far::name_of(info.param); }
INSTANTIATE_TEST_SUITE_P(Networks, LinkWithPeer, ::testing::Values(far::Network::tcp, far::Network::ucx),
                         name_of_network);

TEST_P(LinkWithPeer, KeepsAsManyMessagesAsArePromisedAndNoMore) {
  for (int i = 0; i < kMostUnread; ++i) peer_->send(RawPeer::Kind::message);
  int num_polled = 0;
  await([&] { return (num_polled += poll_all_messages()) == kMostUnread; });
  EXPECT_FALSE(end_->fault()) << end_->fault()->text;

  for (int i = 0; i < 3 * kMostUnread; ++i) peer_->send(RawPeer::Kind::message);
  expect_violation("more than 256 messages that were not read");
  peer_->send(RawPeer::Kind::message);
  EXPECT_EQ(poll_all_messages(), kMostUnread);
}

TEST_P(LinkWithPeer, RefusesPacketsThatBreakTheProtocol) {
  const auto fault_of_no_rank = net::pack(std::int32_t{0}, std::int32_t{7});
  const std::size_t huge = std::size_t{64} << 20;
  const std::vector<std::tuple<RawPeer::Kind, net::Bytes, std::string>> packets = {
      {RawPeer::Kind::message, net::Bytes(kMaxMessageBytes + 1), "a message of 57 bytes"},
      {RawPeer::Kind::message, net::Bytes(huge), "67108864 bytes that are no slice"},
      {static_cast<RawPeer::Kind>(99), {}, "a message of an unknown kind, 99"},
      {RawPeer::Kind::fault, fault_of_no_rank, "a fault that makes no sense (8 bytes)"},
      {RawPeer::Kind::fault, net::Bytes(7), "a fault that makes no sense (7 bytes)"},
      {RawPeer::Kind::left, net::Bytes(7), "a `left` of 7 bytes"},
      {RawPeer::Kind::slice, net::Bytes(huge), "slice #0 of 67108864 bytes, for which it was granted no room"}};
  for (const auto& [kind, bytes, text] : packets) {
    start(5000ms);
    link().slices().expect(kPeer, 1, kSliceBytes);
    peer_->send(kind, bytes);
    expect_violation(text);
    EXPECT_EQ(poll_all_slices() + poll_all_messages(), 0);
  }
}

TEST_P(LinkWithPeer, RefusesWordThatMoreWasReadThanWasSent) {
  peer_->send(RawPeer::Kind::read);
  expect_violation("word that it has read more messages than there were");
  int num_posted = 0;
  while (link().post(kPeer, {}) == Post::posted) ++num_posted;
  EXPECT_EQ(num_posted, kMostUnread) << "the packet has made no room";
}

TEST_P(LinkWithPeer, KeepsAsManySlicesAsWereGrantedAndNoMore) {
  link().slices().expect(kPeer, 3, kSliceBytes);
  link().slices().expect(kPeer, -1, kSliceBytes);
  for (int i = 0; i < 2; ++i) send_slice(kSliceBytes);
  int num_polled = 0;
  await([&] { return (num_polled += poll_all_slices()) == 2; });
  EXPECT_FALSE(end_->fault()) << end_->fault()->text;

  link().slices().expect(kPeer, 1, kSliceBytes);
  for (int i = 0; i < 5; ++i) send_slice(kSliceBytes);
  expect_violation("slice #0 of 4096 bytes");
  EXPECT_EQ(poll_all_slices(), 1);
}

TEST_P(LinkWithPeer, ConnectsOncePingsPassBothWaysAndAnswersLaterOnes) {
  connect();
  for (int round = 1; round <= 3; ++round) {
    await([&] { return peer_->num_received(RawPeer::Kind::alive) == round; });
    peer_->send(RawPeer::Kind::ping);
  }
}

// Until then, this rank may still fail to join the ranks of its machine.
TEST_P(LinkWithPeer, AnswersNoPingBeforeItConnects) {
  peer_->send(RawPeer::Kind::ping);
  peer_->send(RawPeer::Kind::message);
  await([&] { return poll_all_messages() == 1; });  // so the ping has arrived
  ASSERT_EQ(link().post(kPeer, {}), Post::posted);
  await([&] { return peer_->num_received(RawPeer::Kind::message) == 1; });
  EXPECT_EQ(peer_->num_received(RawPeer::Kind::alive), 0);
}

/// Connecting must end with this error, though there is time left.
void expect_no_connection(LinkEnd& end, ErrorCode code, const std::string& text) {
  require_error([&] { end.connect_all(); }, code, text);
}

TEST_P(LinkWithPeer, StopsConnectingWhenAFaultIsKnown) {
  peer_->send(RawPeer::Kind::read);
  expect_no_connection(*end_, ErrorCode::mismatch, "rank 1 sent rank 0 word");
}

TEST_P(LinkWithPeer, StopsConnectingWhenThePeerVanishes) {
  peer_->send(RawPeer::Kind::message);
  await([&] { return poll_all_messages() == 1; });
  peer_->vanish();
  expect_no_connection(*end_, ErrorCode::peer_lost, "rank 0 lost its connection to rank 1");
}

TEST_P(LinkWithPeer, StopsConnectingWhenThePeerLeaves) {
  peer_->send(RawPeer::Kind::left, net::pack(std::uint64_t{0}));
  expect_no_connection(*end_, ErrorCode::peer_lost, "rank 1 left while rank 0 was connecting to it");
}

TEST_P(LinkWithPeer, NamesAPeerThatEndsBeforeItConnects) {
  const auto address = peer_->address();
  peer_->vanish();
  LinkEnd late(GetParam(), address, 5000ms);
  expect_no_connection(late, ErrorCode::peer_lost, "rank 0 lost its connection to rank 1");
}

TEST_P(LinkWithPeer, SendsItsFaultToAPeerThatConnectsLate) {
  link().flood({ErrorCode::peer_lost, RankId(0), RankId(0), "somebody else ended"});
  const auto leaving = leave();
  await([&] { return peer_->num_received(RawPeer::Kind::left) == 1; });
  EXPECT_THAT(peer_->received(), ElementsAre(RawPeer::Kind::fault, RawPeer::Kind::left));
  peer_->send(RawPeer::Kind::left_ack);
  await([&] { return has_ended(leaving, 0ms); });
}

// Else the last packets, a fault among them, could be lost with the connection.
TEST_P(LinkWithPeer, WaitsUntilThePeerAcknowledgesLeft) {
  connect();
  const auto leaving = leave();
  await([&] { return peer_->num_received(RawPeer::Kind::left) == 1; });
  EXPECT_FALSE(has_ended(leaving, 200ms)) << "it has no acknowledgement yet";
  peer_->send(RawPeer::Kind::left_ack);
  await([&] { return has_ended(leaving, 0ms); });
}

/// TCP only: with RDMA the receiver fetches slices.
class LinkThatSendsSlices : public LinkWithPeer {
 protected:
  static constexpr int kNumSlices = 60;  // far more than the system takes

  void post_slices() {
    constexpr std::size_t kLargeSlice = 512 << 10;
    for (int i = 0; i < kNumSlices; ++i)
      link().slices().post(kPeer, link().slices().open(kLargeSlice).value(), kLargeSlice, {});
  }
};
INSTANTIATE_TEST_SUITE_P(Networks, LinkThatSendsSlices, ::testing::Values(far::Network::tcp), name_of_network);

// Else grants would arrive after their receiver has run out of room.
TEST_P(LinkThatSendsSlices, LetsMessagesOvertakeThem) {
  post_slices();
  const std::array<std::byte, 8> message{};
  ASSERT_EQ(link().post(kPeer, message), Post::posted);
  await([&] { return peer_->num_received(RawPeer::Kind::message) == 1; });
  EXPECT_LT(peer_->num_received(RawPeer::Kind::slice), kNumSlices);
}

// A slow peer takes twice as long as the limit for a silent one.
TEST_P(LinkThatSendsSlices, WaitsForASlowNetworkThatStillMovesThem) {
  start(100ms);
  peer_->send(RawPeer::Kind::ping);  // returns when they are connected
  post_slices();
  const auto leaving = leave();
  // Slices travel on other connections than `left`.
  await([&, num_received = 0]() mutable {
    const int num_before = std::exchange(num_received, peer_->num_received(RawPeer::Kind::slice));
    if (num_received > num_before) std::this_thread::sleep_for(70ms);
    return num_received == kNumSlices && peer_->num_received(RawPeer::Kind::left) == 1;
  });
}

/// Until the result ends, no thread can be started: there is no memory for so large a stack.
std::shared_ptr<void> forbid_threads() {
  pthread_attr_t before{};
  pthread_getattr_default_np(&before);
  pthread_attr_t huge = before;
  pthread_attr_setstacksize(&huge, std::size_t{1} << 46);
  require(pthread_setattr_default_np(&huge) == 0, "the stack size can be set");
  return {nullptr, [before](void*) { pthread_setattr_default_np(&before); }};
}

TEST(Link, ThrowsWhereNoThreadCanBeStarted) {
  const RawPeer peer(far::Network::tcp);
  const auto no_threads = forbid_threads();
  require_error([&] { const LinkEnd end(far::Network::tcp, peer.address(), 5000ms); }, ErrorCode::system,
                "can't start the network thread of rank 0");
}

/// Rank 0 leaves; rank 2 of its machine has reported a fault before, or none. What rank 1 of another machine receives.
std::vector<RawPeer::Kind> sent_on_leaving(bool has_fault) {
  RawPeer peer(far::Network::tcp);
  auto carrier = carrier_on_loopback(far::Network::tcp);
  const auto address = carrier->address();
  Wiring wiring;
  for (const int host : {0, 1, 0}) wiring.add(HostId(host), NicId(host));
  const auto segments = LocalTransport::anonymous_segments(2);
  LocalTransport other(RankId(2), segments, {RankId(0), RankId(2)});
  auto rank = std::make_unique<HybridTransport>(RankId(0), wiring, segments, std::move(carrier),
                                                std::vector{contact_of_peer(peer.address())}, 5s);
  peer.connect(address);
  if (has_fault) other.report(ErrorCode::peer_lost, RankId(1), "rank 1 ended");
  rank->leave();
  const auto has_left = std::async(std::launch::async, [&] { rank.reset(); });
  EXPECT_TRUE(eventually([&] {
    peer.progress();
    return peer.num_received(RawPeer::Kind::left) > 0;
  }));
  peer.send(RawPeer::Kind::left_ack);
  return peer.received();
}

TEST(LeavingRank, SendsThatOnceAndAFaultOfAnotherRankBefore) {
  EXPECT_THAT(sent_on_leaving(true), ElementsAre(RawPeer::Kind::fault, RawPeer::Kind::left));
  EXPECT_THAT(sent_on_leaving(false), ElementsAre(RawPeer::Kind::left));
}

// The fault may reach its link while its transport is being destroyed.
TEST(LeavingRank, MayBeReachedByAFaultMeanwhile) {
  for (int round = 0; round < 40; ++round) {
    auto ends = join_hosts(far::Network::tcp, 2, 5s);
    const std::jthread leaving([&] { ends[0].reset(); });
    std::this_thread::sleep_for(50us * round);
    ends[1]->report(ErrorCode::peer_failed, RankId(1), "rank 1 tripped");
    EXPECT_TRUE(ends[1]->fault());
  }
}

}  // namespace
}  // namespace shunt::test
