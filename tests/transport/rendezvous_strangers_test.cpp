// Whoever does not know the token, and a network that does harm, can't disturb ranks that join.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <filesystem>
#include <thread>

#include "support/child_process.hpp"
#include "support/meddling_proxy.hpp"
#include "support/rendezvous_ranks.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kHandshakeBytes = bootstrap::kClaimBytes + sizeof(bootstrap::Digest);
constexpr std::size_t kContributionBytes = 3 * sizeof(std::uint32_t) + sizeof(bootstrap::Digest);

class RendezvousStrangers : public RendezvousTest {
 protected:
  void SetUp() override {
    RendezvousTest::SetUp();
    testing::internal::CaptureStderr();  // rank 0 speaks of those whom it refuses
  }
  void TearDown() override {
    testing::internal::GetCapturedStderr();
    RendezvousTest::TearDown();
  }

  [[nodiscard]] net::Endpoint endpoint() const { return options(1, 2).endpoint; }
  /// What a rank says first.
  [[nodiscard]] static net::Bytes claim_of(std::int32_t rank, std::int32_t size) {
    return bootstrap::encode({.rank = rank, .size = size, .nonce = bootstrap::draw_nonce()});
  }
  /// Lets the rest of the ranks come while the strangers are still there.
  void expect_that_ranks_join(RendezvousRank& coordinator) {
    RendezvousRank participant = start(1, 2);
    (void)participant.expect_joined();
    (void)coordinator.expect_joined();
  }
};

TEST_F(RendezvousStrangers, WhoTalkGarbageAreHungUpOn) {
  RendezvousRank coordinator = start(0, 2);
  for (const std::size_t num_bytes :
       {bootstrap::kClaimBytes, bootstrap::kClaimBytes + 1, std::size_t{5000}, std::size_t{1} << 20}) {
    Caller stranger(endpoint());
    stranger.send(std::string(num_bytes, '\xff'));
    EXPECT_TRUE(stranger.is_closed_by_rank_0()) << num_bytes;
  }
  Caller browser(endpoint());
  browser.send(fmt::format("GET / HTTP/1.1\r\nHost: {}\r\nUser-Agent: a browser\r\n\r\n", net::describe(endpoint())));
  EXPECT_TRUE(browser.is_closed_by_rank_0());
  expect_that_ranks_join(coordinator);
}

TEST_F(RendezvousStrangers, WhoStopInTheMiddleDelayNobody) {
  RendezvousRank coordinator = start(0, 2);
  std::vector<Caller> strangers;
  const net::Bytes claim = claim_of(1, 2);
  for (const std::size_t num_bytes : {std::size_t{0}, std::size_t{1}, claim.size() - 1, claim.size()}) {
    strangers.emplace_back(endpoint());
    strangers.back().send(std::span(claim).first(num_bytes));
  }
  strangers.emplace_back(endpoint());
  strangers.back().send(claim);
  strangers.back().send(std::string(sizeof(bootstrap::Digest) - 1, 'x'));
  (void)Caller(endpoint());    // hangs up
  Caller(endpoint()).reset();  // and rudely
  for (const bool rudely : {false, true}) {
    Caller quitter(endpoint());
    quitter.send(claim);
    if (rudely) quitter.reset();
  }
  expect_that_ranks_join(coordinator);
}

TEST_F(RendezvousStrangers, WhoSendAByteNowAndThenDelayNobody) {
  RendezvousRank coordinator = start(0, 2);
  Caller stranger(endpoint());
  const std::jthread slowly([&](const std::stop_token& stop) {
    for (const std::byte byte : claim_of(1, 2)) {
      if (stop.stop_requested()) return;
      stranger.send(std::span(&byte, 1));
      std::this_thread::sleep_for(100ms);
    }
  });
  expect_that_ranks_join(coordinator);
}

TEST_F(RendezvousStrangers, WhoNeverProveThemselvesAreHungUpOnThoughTheySendSomethingNowAndThen) {
  RendezvousRank coordinator = start(0, 2);
  Caller silent(endpoint());
  Caller talker(endpoint());
  const std::jthread slowly([&](const std::stop_token& stop) {
    for (const std::byte byte : claim_of(1, 2)) {
      if (stop.stop_requested()) return;
      talker.send(std::span(&byte, 1));
      std::this_thread::sleep_for(200ms);
    }
  });
  EXPECT_TRUE(silent.is_closed_by_rank_0());
  EXPECT_TRUE(talker.is_closed_by_rank_0());
  expect_that_ranks_join(coordinator);
}

TEST_F(RendezvousStrangers, WhoClaimARankAndCantProveItAreRefused) {
  RendezvousRank coordinator = start(0, 2);
  Caller stranger(endpoint());
  stranger.send(claim_of(1, 2));
  ASSERT_TRUE(bootstrap::decode_claim(stranger.receive(bootstrap::kClaimBytes)));
  stranger.send(std::string(sizeof(bootstrap::Digest), 'x'));
  EXPECT_EQ(stranger.receive(1), net::Bytes{static_cast<std::byte>(bootstrap::Verdict::refused)});
  EXPECT_TRUE(stranger.is_closed_by_rank_0());
  expect_that_ranks_join(coordinator);
}

TEST_F(RendezvousStrangers, WhoSendRankZerosOwnProofBackAreRefused) {
  RendezvousRank coordinator = start(0, 3);
  RendezvousRank participant = start(1, 3);
  Caller stranger(endpoint());
  stranger.send(claim_of(2, 3));
  const net::Bytes answer = stranger.receive(bootstrap::kClaimBytes);
  stranger.send(std::span(answer).last(sizeof(bootstrap::Digest)));
  EXPECT_EQ(stranger.receive(1), net::Bytes{static_cast<std::byte>(bootstrap::Verdict::refused)});
  (void)start(2, 3).expect_joined();
  for (RendezvousRank* rank : {&coordinator, &participant}) (void)rank->expect_joined();
}

TEST_F(RendezvousStrangers, WhoComeInGreatNumbersMakeRoomForLaterOnes) {
  RendezvousRank coordinator = start(0, 2);
  constexpr std::ptrdiff_t kCrowd = 600;
  std::vector<Caller> crowd;
  for (int i = 0; i < kCrowd; ++i) crowd.emplace_back(endpoint());
  EXPECT_TRUE(crowd.front().is_closed_by_rank_0());
  // Both ends of every connection are this process's. So rank 0 has not just been tired of them all.
  const auto num_descriptors = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  EXPECT_LT(num_descriptors, kCrowd + 300);
  expect_that_ranks_join(coordinator);
}

TEST_F(RendezvousStrangers, CantTakeTheLastDescriptorAway) {
  ChildProcess coordinator([&] {
    const rlimit few{48, 48};
    setrlimit(RLIMIT_NOFILE, &few);
    bootstrap::Rendezvous rendezvous(options(0, 2));
    for (int round = 0; round < 2; ++round) (void)rendezvous.all_gather({}, limit_);
  });
  std::vector<Caller> crowd;
  for (int i = 0; i < 100; ++i) crowd.emplace_back(endpoint());
  EXPECT_TRUE(crowd.front().is_closed_by_rank_0());
  (void)start(1, 2).expect_joined();
  const auto end = coordinator.wait();
  ASSERT_TRUE(end) << "hangs";
  EXPECT_TRUE(end->returned) << end->error;
}

TEST_F(RendezvousStrangers, GetNoMemoryForAContributionThatIsTooLong) {
  RendezvousRank coordinator = start(0, 2);
  PuppetParticipant boaster(options(1, 2));
  boaster.send(bootstrap::FrameKind::contribution, std::string(Bootstrap::kMaxBytes + 5, 'x'));
  EXPECT_FALSE(boaster.receive()) << "rank 0 has not hung up";
  expect_that_ranks_join(coordinator);
}

TEST_F(RendezvousStrangers, CantReplayAHandshakeThatTheyRecorded) {
  const FreePort proxy_port;
  net::Endpoint proxy_endpoint = endpoint();
  proxy_endpoint.port = proxy_port.number();
  MeddlingProxy proxy(proxy_endpoint, endpoint());

  RendezvousRank coordinator = start(0, 3);
  bootstrap::RendezvousOptions overheard = options(1, 3);
  overheard.endpoint = proxy_endpoint;
  RendezvousRank victim(overheard);
  const net::Bytes recorded = proxy.await_recording(kHandshakeBytes + kContributionBytes);

  const auto replay = [&] {
    Caller stranger(endpoint());
    stranger.send(recorded);
    EXPECT_TRUE(bootstrap::decode_claim(stranger.receive(bootstrap::kClaimBytes)));
    EXPECT_EQ(stranger.receive(1), net::Bytes{static_cast<std::byte>(bootstrap::Verdict::refused)});
    EXPECT_TRUE(stranger.is_closed_by_rank_0());
  };
  for (int i = 0; i < 3; ++i) replay();
  (void)start(2, 3).expect_joined();
  for (RendezvousRank* rank : {&coordinator, &victim}) (void)rank->expect_joined();

  RendezvousRank next = start(0, 2);
  replay();
  expect_that_ranks_join(next);
}

TEST_F(RendezvousStrangers, WhoListenAtRankZerosPlaceAreNotTakenForIt) {
  limit_ = 500ms;
  const std::vector<Descriptor> listeners = net::listen_at(endpoint());
  const auto serve_once = [&](const std::function<void(bootstrap::Connection&)>& answer) {
    pollfd entry = {listeners.front().get(), POLLIN, 0};
    if (!wait_ready(std::span(&entry, 1), std::chrono::steady_clock::now() + 30s)) return;
    bootstrap::Connection stream(net::accept_from(listeners.front()).socket);
    answer(stream);
    pollfd hangup = {stream.socket().get(), POLLIN, 0};
    while (!stream.is_lost() && wait_ready(std::span(&hangup, 1), std::chrono::steady_clock::now() + 30s))
      stream.discard();
  };

  RendezvousRank participant = start(1, 2);
  serve_once([&](bootstrap::Connection& stream) {
    net::Bytes answer = bootstrap::encode({.rank = 0, .size = 2, .nonce = bootstrap::draw_nonce()});
    net::append(answer, static_cast<std::uint8_t>(bootstrap::Verdict::accepted));
    net::append(answer, bootstrap::Digest{});
    stream.send(answer);
  });
  participant.expect_error(ErrorCode::invalid_argument, "rank 1 does not accept the token of rank 0");

  RendezvousRank other_participant = start(1, 2);
  serve_once([](bootstrap::Connection& stream) { stream.send(net::bytes_of(std::string(400, 'x'))); });
  // It keeps coming again, and nobody answers.
  other_participant.expect_error(ErrorCode::deadline, "in vain for rank 0");
}

/// Rank 1 meets the others through a network that does harm while it comes, or when it is there.
class RendezvousMishap : public RendezvousTest,
                         public ::testing::WithParamInterface<std::tuple<Mishap, std::size_t>> {};

TEST_P(RendezvousMishap, IsSurvivedByComingAgain) {
  const auto [mishap, after_bytes] = GetParam();
  const FreePort proxy_port;
  bootstrap::RendezvousOptions harmed = options(1, 3);
  harmed.endpoint.port = proxy_port.number();
  MeddlingProxy proxy(harmed.endpoint, options(1, 3).endpoint, mishap, after_bytes);
  RendezvousRank coordinator = start(0, 3);
  (void)Caller(options(1, 3).endpoint);
  RendezvousRank participant(harmed);
  const auto guard = std::chrono::steady_clock::now() + 30s;
  while (proxy.recorded().size() < 2 && std::chrono::steady_clock::now() < guard) std::this_thread::sleep_for(1ms);
  EXPECT_GE(proxy.recorded().size(), 2u) << "the participant came once only";
  RendezvousRank last = start(2, 3);
  for (RendezvousRank* rank : {&coordinator, &participant, &last})
    EXPECT_TRUE(rank->expect_joined().texts[1].empty()) << "somebody else's text";
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<Mishap, std::size_t>>& info) {
  constexpr const char* kNames[] = {"None", "Cut", "CutUnnoticed", "ForgeryToCoordinator", "ForgeryToParticipant"};
  return fmt::format("{}After{}Bytes", kNames[static_cast<int>(std::get<0>(info.param))], std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(AtAnyTime, RendezvousMishap,
                         ::testing::Combine(::testing::Values(Mishap::cut, Mishap::cut_unnoticed),
                                            ::testing::Values(bootstrap::kClaimBytes - 1, kHandshakeBytes,
                                                              kHandshakeBytes + kContributionBytes)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(AfterTheProof, RendezvousMishap,
                         ::testing::Combine(::testing::Values(Mishap::forgery_to_coordinator,
                                                              Mishap::forgery_to_participant),
                                            ::testing::Values(kHandshakeBytes, kHandshakeBytes + kContributionBytes)),
                         name_of);

}  // namespace
}  // namespace shunt::test
