// A link and an authenticated peer that lies, dies at a bad moment, or is slow.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <functional>
#include <future>
#include <optional>

#include "support/hosts_of_threads.hpp"
#include "support/link_pair.hpp"
#include "support/require.hpp"

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
    peer_.emplace(GetParam());
    end_.emplace(GetParam(), peer_->address(), 5000ms);
    peer_->connect(end_->address());
  }
  // First, so that the link does not wait for it.
  void TearDown() override { peer_.reset(); }

  /// Makes progress until the condition holds; a guard against hangs only.
  void await(const std::function<bool()>& condition) {
    const auto guard = std::chrono::steady_clock::now() + 30s;
    while (!condition()) {
      peer_->progress();
      require(std::chrono::steady_clock::now() < guard, "waited in vain");
    }
  }
  void expect_accused(const std::string& of) {
    await([&] { return end_->heard().fault().has_value(); });
    const Fault fault = *end_->heard().fault();
    EXPECT_EQ(fault.code, ErrorCode::mismatch);
    EXPECT_EQ(fault.culprit, kPeer);
    EXPECT_THAT(fault.text, HasSubstr("rank 1 sent rank 0 " + of));
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
  std::optional<HonestEnd> end_;
};

std::string name_of_network(const ::testing::TestParamInfo<far::Network>& info) { return far::name_of(info.param); }
INSTANTIATE_TEST_SUITE_P(Networks, LinkWithPeer, ::testing::Values(far::Network::tcp, far::Network::ucx),
                         name_of_network);

TEST_P(LinkWithPeer, KeepsAsManyMessagesAsArePromisedAndNoMore) {
  for (int i = 0; i < kMostUnread; ++i) peer_->send(RawPeer::Kind::message);
  int num_polled = 0;
  await([&] { return (num_polled += poll_all_messages()) == kMostUnread; });
  EXPECT_FALSE(end_->heard().fault()) << end_->heard().fault()->text;

  for (int i = 0; i < 3 * kMostUnread; ++i) peer_->send(RawPeer::Kind::message);
  expect_accused("more than 256 messages that were not read");
  peer_->send(RawPeer::Kind::message);
  EXPECT_EQ(poll_all_messages(), kMostUnread);
}

TEST_P(LinkWithPeer, RefusesAMessageThatIsTooLong) {
  peer_->send(RawPeer::Kind::message, std::vector<std::byte>(kMaxMessageBytes + 1));
  expect_accused("a message of 57 bytes");
}

TEST_P(LinkWithPeer, RefusesWordThatMoreWasReadThanWasSent) {
  peer_->send(RawPeer::Kind::read);
  expect_accused("word that it has read more messages than there were");
  int num_posted = 0;
  while (link().post(kPeer, {}) == Post::posted) ++num_posted;
  EXPECT_EQ(num_posted, kMostUnread) << "the lie has made no room";
}

TEST_P(LinkWithPeer, RefusesSlicesThatWereNotGranted) {
  send_slice(8);
  expect_accused("slice #0 of 8 bytes, for which it was granted no room");
  EXPECT_EQ(poll_all_slices(), 0);
}

TEST_P(LinkWithPeer, KeepsAsManySlicesAsWereGrantedAndNoMore) {
  link().slices().expect(kPeer, 3, kSliceBytes);
  link().slices().expect(kPeer, -1, kSliceBytes);
  for (int i = 0; i < 2; ++i) send_slice(kSliceBytes);
  int num_polled = 0;
  await([&] { return (num_polled += poll_all_slices()) == 2; });
  EXPECT_FALSE(end_->heard().fault()) << end_->heard().fault()->text;

  link().slices().expect(kPeer, 1, kSliceBytes);
  for (int i = 0; i < 5; ++i) send_slice(kSliceBytes);
  expect_accused("slice #0 of 4096 bytes");
  EXPECT_EQ(poll_all_slices(), 1);
}

TEST_P(LinkWithPeer, RefusesASliceThatIsTooLargeHoweverItTravels) {
  link().slices().expect(kPeer, 1, kSliceBytes);
  send_slice(std::size_t{64} << 20);
  expect_accused("slice #0 of 67108864 bytes");
}

TEST_P(LinkWithPeer, RefusesBytesThatAreNoSlice) {
  peer_->send(RawPeer::Kind::message, std::vector<std::byte>(std::size_t{64} << 20));
  expect_accused("67108864 bytes that are no slice");
}

TEST_P(LinkWithPeer, RefusesKindsThatAreNone) {
  peer_->send(static_cast<RawPeer::Kind>(99));
  expect_accused("a message of an unknown kind, 99");
}

TEST_P(LinkWithPeer, RefusesAFaultThatMakesNoSense) {
  const std::array<std::int32_t, 2> words = {0, 7};
  peer_->send(RawPeer::Kind::fault, std::as_bytes(std::span(words)));
  expect_accused("a fault that makes no sense");
}

TEST_P(LinkWithPeer, GreetsUntilItIsHeardAndAnsweredThenAnswersThatItLives) {
  peer_->send(RawPeer::Kind::ping);
  peer_->send(RawPeer::Kind::alive);
  link().greet_all(30s, [&] { return end_->heard().fault(); });
  for (int round = 1; round <= 3; ++round) {
    await([&] { return peer_->num_heard(RawPeer::Kind::alive) == round; });
    peer_->send(RawPeer::Kind::ping);
  }
}

// A rank whose host's ranks have not met yet may still fail to join.
TEST_P(LinkWithPeer, AnswersNobodyBeforeItGreets) {
  peer_->send(RawPeer::Kind::ping);
  peer_->send(RawPeer::Kind::message);
  await([&] { return poll_all_messages() == 1; });  // so the ping was heard
  ASSERT_EQ(link().post(kPeer, {}), Post::posted);
  await([&] { return peer_->num_heard(RawPeer::Kind::message) == 1; });
  EXPECT_EQ(peer_->num_heard(RawPeer::Kind::alive), 0);
}

/// Greeting must end with this error, though there is time left.
void expect_greeting_fails(HonestEnd& end, ErrorCode code, const std::string& text) {
  try {
    end.link().greet_all(60s, [&] { return end.heard().fault(); });
    FAIL() << "greeted nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_THAT(error.what(), HasSubstr(text));
  }
}

TEST_P(LinkWithPeer, EndsItsGreetingWhenAFaultIsKnown) {
  peer_->send(RawPeer::Kind::read);
  expect_greeting_fails(*end_, ErrorCode::mismatch, "rank 1 sent rank 0 word");
}

TEST_P(LinkWithPeer, EndsItsGreetingWhenThePeerBreaksOff) {
  peer_->send(RawPeer::Kind::message);
  await([&] { return poll_all_messages() == 1; });
  peer_->vanish();
  expect_greeting_fails(*end_, ErrorCode::peer_lost, "rank 0 lost its connection to rank 1");
}

TEST_P(LinkWithPeer, EndsItsGreetingWhenThePeerLeaves) {
  const std::uint64_t no_slices = 0;
  peer_->send(RawPeer::Kind::left, std::as_bytes(std::span(&no_slices, 1)));
  expect_greeting_fails(*end_, ErrorCode::peer_lost, "rank 1 left while rank 0 was greeting it");
}

TEST_P(LinkWithPeer, NamesAPeerThatHasEndedSinceTheyMet) {
  const auto address = peer_->address();
  peer_->vanish();
  HonestEnd late(GetParam(), address, 5000ms);
  expect_greeting_fails(late, ErrorCode::peer_lost, "rank 0 lost its connection to rank 1");
}

TEST_P(LinkWithPeer, TellsWhyItLeavesWhoComesLater) {
  link().flood({ErrorCode::peer_lost, RankId(0), RankId(0), "somebody else ended"});
  auto end = std::async(std::launch::async, [&] { end_.reset(); });
  await([&] { return peer_->num_heard(RawPeer::Kind::left) == 1; });
  EXPECT_THAT(peer_->heard(), ElementsAre(RawPeer::Kind::fault, RawPeer::Kind::left));
  peer_->send(RawPeer::Kind::parted);
  await([&] { return end.wait_for(0ms) == std::future_status::ready; });
}

/// Where there is RDMA, slices are fetched.
class LinkThatSendsSlices : public LinkWithPeer {};
INSTANTIATE_TEST_SUITE_P(Networks, LinkThatSendsSlices, ::testing::Values(far::Network::tcp), name_of_network);

// A grant that comes when its receiver has run dry comes too late.
TEST_P(LinkThatSendsSlices, LetsMessagesOvertakeThem) {
  constexpr int kNumSlices = 60;  // far more than the system takes
  constexpr std::size_t kLargeSlice = 512 << 10;
  for (int i = 0; i < kNumSlices; ++i)
    link().slices().post(kPeer, link().slices().open(kLargeSlice).value(), kLargeSlice, {});
  const std::array<std::byte, 8> message{};
  ASSERT_EQ(link().post(kPeer, message), Post::posted);
  await([&] { return peer_->num_heard(RawPeer::Kind::message) == 1; });
  EXPECT_LT(peer_->num_heard(RawPeer::Kind::slice), kNumSlices);
}

/// While it lives no thread can be started: there is no memory for so large a stack.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge = before_;
    pthread_attr_setstacksize(&huge, std::size_t{1} << 46);
    require(pthread_setattr_default_np(&huge) == 0, "the stack size can be set");
  }
  ~NoThreads() { pthread_setattr_default_np(&before_); }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

TEST(LinkWithoutAThread, IsAnErrorAndNotTheEnd) {
  const RawPeer peer(far::Network::tcp);
  const NoThreads no_threads;
  try {
    const HonestEnd end(far::Network::tcp, peer.address(), 5000ms);
    FAIL() << "made a link";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::system);
    EXPECT_THAT(error.what(), HasSubstr("can't start the network thread of rank 0"));
  }
}

}  // namespace
}  // namespace shunt::test
