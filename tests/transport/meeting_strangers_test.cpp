// Whoever does not know the token, and a network that does harm, can't disturb a meeting.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <filesystem>
#include <thread>

#include "support/child_process.hpp"
#include "support/meddling_proxy.hpp"
#include "support/meeting_ranks.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kHandshakeBytes = net::kClaimBytes + sizeof(net::Digest);
constexpr std::size_t kEmptyCardBytes = 2 * sizeof(std::uint32_t) + sizeof(net::Digest);

class MeetingStrangers : public MeetingTest {
 protected:
  void SetUp() override {
    MeetingTest::SetUp();
    testing::internal::CaptureStderr();  // rank 0 speaks of those whom it refuses
  }
  void TearDown() override {
    testing::internal::GetCapturedStderr();
    MeetingTest::TearDown();
  }

  [[nodiscard]] net::MeetingPlace place() const { return options(1, 2).place; }
  /// What a rank says first.
  [[nodiscard]] static net::Bytes claim_of(std::int32_t rank, std::int32_t size) {
    return net::encode({.rank = rank, .size = size, .nonce = net::draw_nonce()});
  }
  /// Lets the rest of the ranks come while the strangers are still there.
  void expect_that_ranks_meet(MeetingRank& host) {
    MeetingRank guest = start(1, 2);
    (void)guest.expect_meeting();
    (void)host.expect_meeting();
  }
};

TEST_F(MeetingStrangers, WhoTalkGarbageAreHungUpOn) {
  MeetingRank host = start(0, 2);
  for (const std::size_t num_bytes :
       {net::kClaimBytes, net::kClaimBytes + 1, std::size_t{5000}, std::size_t{1} << 20}) {
    Caller stranger(place());
    stranger.send(std::string(num_bytes, '\xff'));
    EXPECT_TRUE(stranger.is_closed_by_host()) << num_bytes;
  }
  Caller browser(place());
  browser.send(fmt::format("GET / HTTP/1.1\r\nHost: {}\r\nUser-Agent: a browser\r\n\r\n", net::describe(place())));
  EXPECT_TRUE(browser.is_closed_by_host());
  expect_that_ranks_meet(host);
}

TEST_F(MeetingStrangers, WhoStopInTheMiddleDelayNobody) {
  MeetingRank host = start(0, 2);
  std::vector<Caller> strangers;
  const net::Bytes claim = claim_of(1, 2);
  for (const std::size_t num_bytes : {std::size_t{0}, std::size_t{1}, claim.size() - 1, claim.size()}) {
    strangers.emplace_back(place());
    strangers.back().send(std::span(claim).first(num_bytes));
  }
  strangers.emplace_back(place());
  strangers.back().send(claim);
  strangers.back().send(std::string(sizeof(net::Digest) - 1, 'x'));
  (void)Caller(place());    // hangs up
  Caller(place()).reset();  // and rudely
  for (const bool rudely : {false, true}) {
    Caller quitter(place());
    quitter.send(claim);
    if (rudely) quitter.reset();
  }
  expect_that_ranks_meet(host);
}

TEST_F(MeetingStrangers, WhoSendAByteNowAndThenDelayNobody) {
  MeetingRank host = start(0, 2);
  Caller stranger(place());
  const std::jthread slowly([&](const std::stop_token& stop) {
    for (const std::byte byte : claim_of(1, 2)) {
      if (stop.stop_requested()) return;
      stranger.send(std::span(&byte, 1));
      std::this_thread::sleep_for(100ms);
    }
  });
  expect_that_ranks_meet(host);
}

TEST_F(MeetingStrangers, WhoNeverProveThemselvesAreHungUpOnThoughTheySendSomethingNowAndThen) {
  MeetingRank host = start(0, 2);
  Caller silent(place());
  Caller talker(place());
  const std::jthread slowly([&](const std::stop_token& stop) {
    for (const std::byte byte : claim_of(1, 2)) {
      if (stop.stop_requested()) return;
      talker.send(std::span(&byte, 1));
      std::this_thread::sleep_for(200ms);
    }
  });
  EXPECT_TRUE(silent.is_closed_by_host());
  EXPECT_TRUE(talker.is_closed_by_host());
  expect_that_ranks_meet(host);
}

TEST_F(MeetingStrangers, WhoClaimARankAndCantProveItAreRefused) {
  MeetingRank host = start(0, 2);
  Caller stranger(place());
  stranger.send(claim_of(1, 2));
  ASSERT_TRUE(net::decode_claim(stranger.receive(net::kClaimBytes)));
  stranger.send(std::string(sizeof(net::Digest), 'x'));
  EXPECT_EQ(stranger.receive(1), net::Bytes{static_cast<std::byte>(net::Verdict::refused)});
  EXPECT_TRUE(stranger.is_closed_by_host());
  expect_that_ranks_meet(host);
}

TEST_F(MeetingStrangers, WhoSendRankZerosOwnProofBackAreRefused) {
  MeetingRank host = start(0, 3);
  MeetingRank guest = start(1, 3);
  Caller stranger(place());
  stranger.send(claim_of(2, 3));
  const net::Bytes answer = stranger.receive(net::kClaimBytes);
  stranger.send(std::span(answer).last(sizeof(net::Digest)));
  EXPECT_EQ(stranger.receive(1), net::Bytes{static_cast<std::byte>(net::Verdict::refused)});
  (void)start(2, 3).expect_meeting();
  for (MeetingRank* rank : {&host, &guest}) (void)rank->expect_meeting();
}

TEST_F(MeetingStrangers, WhoComeInGreatNumbersMakeRoomForLaterOnes) {
  MeetingRank host = start(0, 2);
  constexpr std::ptrdiff_t kCrowd = 600;
  std::vector<Caller> crowd;
  for (int i = 0; i < kCrowd; ++i) crowd.emplace_back(place());
  EXPECT_TRUE(crowd.front().is_closed_by_host());
  // Both ends of every connection are this process's. So rank 0 has not just been tired of them all.
  const auto num_descriptors = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  EXPECT_LT(num_descriptors, kCrowd + 300);
  expect_that_ranks_meet(host);
}

TEST_F(MeetingStrangers, CantTakeTheLastDescriptorAway) {
  ChildProcess host([&] {
    const rlimit few{48, 48};
    setrlimit(RLIMIT_NOFILE, &few);
    (void)net::meet(options(0, 2), {});
  });
  std::vector<Caller> crowd;
  for (int i = 0; i < 100; ++i) crowd.emplace_back(place());
  EXPECT_TRUE(crowd.front().is_closed_by_host());
  (void)start(1, 2).expect_meeting();
  const auto end = host.wait();
  ASSERT_TRUE(end) << "hangs";
  EXPECT_TRUE(end->returned) << end->error;
}

TEST_F(MeetingStrangers, GetNoMemoryForACardThatIsTooLong) {
  MeetingRank host = start(0, 2);
  PuppetGuest boaster(options(1, 2));
  boaster.send(net::FrameKind::card, std::string(net::kMaxCardBytes + 1, 'x'));
  EXPECT_FALSE(boaster.receive()) << "rank 0 has not hung up";
  expect_that_ranks_meet(host);
}

TEST_F(MeetingStrangers, CantReplayAHandshakeThatTheyRecorded) {
  const FreePort proxy_port;
  net::MeetingPlace proxy_place = place();
  proxy_place.port = proxy_port.number();
  MeddlingProxy proxy(proxy_place, place());

  MeetingRank host = start(0, 3);
  net::MeetingOptions overheard = options(1, 3);
  overheard.place = proxy_place;
  MeetingRank victim(overheard);
  const net::Bytes recorded = proxy.await_recording(kHandshakeBytes + kEmptyCardBytes);

  const auto replay = [&] {
    Caller stranger(place());
    stranger.send(recorded);
    EXPECT_TRUE(net::decode_claim(stranger.receive(net::kClaimBytes)));
    EXPECT_EQ(stranger.receive(1), net::Bytes{static_cast<std::byte>(net::Verdict::refused)});
    EXPECT_TRUE(stranger.is_closed_by_host());
  };
  for (int i = 0; i < 3; ++i) replay();
  (void)start(2, 3).expect_meeting();
  for (MeetingRank* rank : {&host, &victim}) (void)rank->expect_meeting();

  MeetingRank next = start(0, 2);
  replay();
  expect_that_ranks_meet(next);
}

TEST_F(MeetingStrangers, WhoListenAtRankZerosPlaceAreNotTakenForIt) {
  limit_ = 500ms;
  const std::vector<Descriptor> listeners = net::listen_at(place());
  const auto serve_once = [&](const std::function<void(net::Stream&)>& answer) {
    pollfd entry = {listeners.front().get(), POLLIN, 0};
    if (!wait_ready(std::span(&entry, 1), std::chrono::steady_clock::now() + 30s)) return;
    net::Stream stream(net::accept_from(listeners.front()).socket);
    answer(stream);
    pollfd hangup = {stream.socket().get(), POLLIN, 0};
    while (!stream.is_lost() && wait_ready(std::span(&hangup, 1), std::chrono::steady_clock::now() + 30s))
      stream.discard();
  };

  MeetingRank guest = start(1, 2);
  serve_once([&](net::Stream& stream) {
    net::Bytes answer = net::encode({.rank = 0, .size = 2, .nonce = net::draw_nonce()});
    net::append(answer, static_cast<std::uint8_t>(net::Verdict::welcome));
    net::append(answer, net::Digest{});
    stream.send(answer);
  });
  guest.expect_error(ErrorCode::invalid_argument, "rank 1 does not accept the token of rank 0");

  MeetingRank other_guest = start(1, 2);
  serve_once([](net::Stream& stream) { stream.send(net::bytes_of(std::string(400, 'x'))); });
  // It keeps coming again, and nobody answers.
  other_guest.expect_error(ErrorCode::deadline, "in vain for rank 0");
}

/// Rank 1 meets the others through a network that does harm while it comes, or when it is there.
class MeetingMishap : public MeetingTest, public ::testing::WithParamInterface<std::tuple<Mishap, std::size_t>> {};

TEST_P(MeetingMishap, IsSurvivedByComingAgain) {
  const auto [mishap, after_bytes] = GetParam();
  const FreePort proxy_port;
  net::MeetingOptions harmed = options(1, 3);
  harmed.place.port = proxy_port.number();
  MeddlingProxy proxy(harmed.place, options(1, 3).place, mishap, after_bytes);
  MeetingRank host = start(0, 3);
  (void)Caller(options(1, 3).place);
  MeetingRank guest(harmed);
  const auto guard = std::chrono::steady_clock::now() + 30s;
  while (proxy.recorded().size() < 2 && std::chrono::steady_clock::now() < guard) std::this_thread::sleep_for(1ms);
  EXPECT_GE(proxy.recorded().size(), 2u) << "the guest came once only";
  MeetingRank last = start(2, 3);
  for (MeetingRank* rank : {&host, &guest, &last})
    EXPECT_TRUE(rank->expect_meeting().card(RankId(1)).empty()) << "somebody else's card";
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<Mishap, std::size_t>>& info) {
  constexpr const char* kNames[] = {"None", "Cut", "CutUnnoticed", "ForgeryToHost", "ForgeryToGuest"};
  return fmt::format("{}After{}Bytes", kNames[static_cast<int>(std::get<0>(info.param))], std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(AtAnyTime, MeetingMishap,
                         ::testing::Combine(::testing::Values(Mishap::cut, Mishap::cut_unnoticed),
                                            ::testing::Values(net::kClaimBytes - 1, kHandshakeBytes,
                                                              kHandshakeBytes + kEmptyCardBytes)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(AfterTheProof, MeetingMishap,
                         ::testing::Combine(::testing::Values(Mishap::forgery_to_host, Mishap::forgery_to_guest),
                                            ::testing::Values(kHandshakeBytes, kHandshakeBytes + kEmptyCardBytes)),
                         name_of);

}  // namespace
}  // namespace shunt::test
