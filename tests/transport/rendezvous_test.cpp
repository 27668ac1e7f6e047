// Ranks find each other at rank 0 and exchange bytes there, or throw the same Error.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <numeric>
#include <set>

#include "shunt/log.hpp"
#include "support/child_process.hpp"
#include "support/eventually.hpp"
#include "support/raw_connection.hpp"
#include "support/rendezvous_ranks.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;
using bootstrap::FrameKind;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string text_of(std::int32_t rank) { return fmt::format("text of rank {}", rank); }

class Rendezvous : public RendezvousTest {
 protected:
  /// Starts all ranks in this order, and expects that each gathers all texts.
  void expect_all_gather(const std::vector<std::int32_t>& order) {
    const auto size = static_cast<std::int32_t>(order.size());
    std::vector<RendezvousRank> ranks;
    std::vector<std::string> texts;
    for (const std::int32_t rank : order) ranks.emplace_back(options(rank, size), text_of(rank));
    for (std::int32_t rank = 0; rank < size; ++rank) texts.push_back(text_of(rank));
    for (auto& rank : ranks) EXPECT_EQ(rank.expect_joined().texts, texts);
  }
};

bool has_address(const std::string& address) {
  try {
    return net::open_listener(address, "").socket.valid();
  } catch (const Error&) {
    return false;
  }
}

TEST_F(Rendezvous, GathersTheBytesOfAllRanksOnAllAtEveryAddress) {
  for (const char* address : {"127.0.0.1", "::1"}) {
    address_ = address;
    if (!has_address(address_)) continue;  // some machines have no IPv6
    for (const std::size_t size : {1, 2, 7, 64}) {
      std::vector<std::int32_t> order(size);
      std::iota(order.begin(), order.end(), 0);
      expect_all_gather(order);
    }
  }
}

/// Over TCP and over a socket of this machine.
class RendezvousOverSocket : public Rendezvous, public ::testing::WithParamInterface<const char*> {
 protected:
  RendezvousOverSocket() { address_ = GetParam()[0] == '@' ? fmt::format("{}/{}", GetParam(), getpid()) : GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(OverEverySocket, RendezvousOverSocket, ::testing::Values("127.0.0.1", "@shunt/test"),
                         [](const auto& of) { return of.param[0] == '@' ? "Local" : "Tcp"; });

TEST_F(Rendezvous, IsFoundAtTheFirstOfSeveralAddressesThatAnswers) {
  RendezvousRank coordinator = start(0, 2);
  auto searching = options(1, 2);
  searching.endpoint.address = "no.such.host.invalid,127.0.0.77,127.0.0.1";
  (void)RendezvousRank(searching).expect_joined();
  (void)coordinator.expect_joined();
}

// The launcher's own store may hold the first.
TEST_F(Rendezvous, TakesTheFirstFreeOneOfSeveralPorts) {
  const auto taken = net::listen_at(options(0, 3).endpoint);
  ASSERT_FALSE(taken.empty());
  std::vector<RendezvousRank> ranks;
  for (const std::int32_t rank : {2, 0, 1}) {
    auto mine = options(rank, 3);
    mine.num_ports = 8;
    mine.limit = 20'000ms;
    ranks.emplace_back(mine);
  }
  // The program at the first port hangs up on both participants.
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(eventually([&] { return net::accept_from(taken.front()).socket.valid(); }));
  for (RendezvousRank& rank : ranks) (void)rank.expect_joined();
}

TEST_P(RendezvousOverSocket, BringsRanksTogetherInWhateverOrderTheyStart) {
  for (const auto& order : {std::vector{0, 1, 2, 3}, std::vector{3, 1, 0, 2}, std::vector{1, 2, 3, 0}})
    expect_all_gather(order);
}

TEST_F(Rendezvous, CarriesBytesOfEveryAllowedLength) {
  const std::string longest(std::size_t{1} << 20, 'x');
  const std::vector<std::string> texts = {"", longest, "x", longest};
  std::vector<RendezvousRank> ranks;
  for (std::int32_t rank = 0; rank < 4; ++rank) ranks.emplace_back(options(rank, 4), texts[RankId(rank).index()]);
  for (RendezvousRank& rank : ranks) EXPECT_TRUE(rank.expect_joined().texts == texts);
  RendezvousRank(options(0, 1), longest + "y").expect_error(ErrorCode::invalid_argument, "1048577 bytes");
}

TEST_F(Rendezvous, FollowsAnotherAtOnceAtTheSamePort) {
  constexpr std::int32_t kSize = 5;
  constexpr std::uint32_t kNumWorlds = 20;
  const auto join_again_and_again = [&](std::int32_t rank) {
    auto mine = options(rank, kSize);
    for (mine.number = 0; mine.number < kNumWorlds; ++mine.number)
      (void)bootstrap::join_rendezvous(mine)->all_gather({}, limit_);
  };
  std::vector<std::future<void>> ranks;
  for (std::int32_t rank = 0; rank < kSize; ++rank)
    ranks.push_back(std::async(std::launch::async, join_again_and_again, rank));
  for (auto& rank : ranks) EXPECT_NO_THROW(rank.get());
}

TEST_F(Rendezvous, RefusesAnEmptyToken) {
  token_ = "";
  for (const std::int32_t rank : {0, 1}) start(rank, 2).expect_error(ErrorCode::invalid_argument, "token");
  start(0, 1).expect_error(ErrorCode::invalid_argument, "token");
}

TEST_F(Rendezvous, RefusesARankOutsideTheWorld) {
  for (const std::int32_t rank : {-1, 2}) start(rank, 2).expect_error(ErrorCode::invalid_argument, "2 ranks");
}

TEST_F(Rendezvous, RefusesWrongTokensInOneLineEachWithoutThemAndAfterSomeSilently) {
  std::vector<std::string> log;
  set_log_sink([&](std::string_view line) { log.emplace_back(line); });
  RendezvousRank coordinator = start(0, 2);
  auto mistaken = options(1, 2);
  mistaken.token = "open barley";
  for (int i = 0; i < 30; ++i) RendezvousRank(mistaken).expect_error(ErrorCode::invalid_argument, "token of rank 1");
  RendezvousRank participant = start(1, 2);
  for (RendezvousRank* rank : {&coordinator, &participant}) (void)rank->expect_joined();
  set_log_sink(nullptr);
  ASSERT_EQ(log.size(), 8u);
  EXPECT_THAT(log.front(), AllOf(StartsWith("rank 0 refuses 127.0.0.1:"), HasSubstr("rank 1")));
  EXPECT_THAT(log, Each(AllOf(Not(HasSubstr("open")), Not(HasSubstr("\n")))));
  EXPECT_THAT(log.back(), HasSubstr("further ones are refused silently"));
}

TEST_P(RendezvousOverSocket, RefusesAnotherJobAtTheSameAddressAndGoesOn) {
  testing::internal::CaptureStderr();
  RendezvousRank coordinator = start(0, 2);
  (void)RawConnection(options(1, 2).endpoint);  // it listens
  token_ = "another job's";
  start(0, 2).expect_error(ErrorCode::system, "rank 0 can't listen at " + net::describe(endpoint()));
  start(1, 2).expect_error(ErrorCode::invalid_argument, "rank 0 at " + net::describe(endpoint()));
  token_ = "open sesame";
  RendezvousRank participant = start(1, 2);
  for (RendezvousRank* rank : {&coordinator, &participant}) (void)rank->expect_joined();
  testing::internal::GetCapturedStderr();
}

TEST_P(RendezvousOverSocket, NamesTheMissingRanksToAllThatCame) {
  limit_ = 2'000ms;
  RendezvousRank coordinator = start(0, 4);
  RendezvousRank participant = start(2, 4);
  for (RendezvousRank* rank : {&coordinator, &participant}) rank->expect_error(ErrorCode::deadline, "of 4 ranks: 1, 3");
}

TEST_F(Rendezvous, NamesAFewOfManyMissingRanks) {
  limit_ = 50ms;
  start(0, 4000).expect_error(ErrorCode::deadline,
                              "ranks: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 3983 more");
}

TEST_P(RendezvousOverSocket, NamesAMissingRankZeroAndItsAddress) {
  limit_ = 200ms;
  start(1, 2).expect_error(ErrorCode::deadline, "rank 0 of 2 at " + net::describe(endpoint()));
}

// Unlike for a rank 0 that is not there yet.
TEST_F(Rendezvous, DoesNotWaitForANameThatDoesNotExist) {
  address_ = "no such host,nor this one";
  start(1, 2).expect_error(ErrorCode::invalid_argument, "rank 1 can't find rank 0 of 2 at no such host,nor this one:");
}

/// A wrong hello of one participant, and the words of the Error on all ranks.
struct Mistake {
  std::string words;
  std::function<void(bootstrap::RendezvousOptions&)> make;
  std::uint32_t version = bootstrap::kProtocolVersion;
};

TEST_P(RendezvousOverSocket, NamesAParticipantThatDisagreesToAll) {
  const std::vector<Mistake> mistakes = {
      {"rank 2 expects 4 ranks, rank 0 expects 3", [](auto& mine) { mine.size = 4; }},
      {"rank 2 joins world 1 of the job, rank 0 world 0", [](auto& mine) { mine.number = 1; }},
      {"rank 2 speaks version 3 of the protocol, rank 0 version 2", [](auto&) {}, bootstrap::kProtocolVersion + 1},
      {"a participant identifies as rank -1 of 3", [](auto& mine) { mine.rank = RankId(-1); }},
      {"a participant identifies as rank 0 of 3", [](auto& mine) { mine.rank = RankId(0); }},
      {"a participant identifies as rank 3 of 3", [](auto& mine) { mine.rank = RankId(3); }},
  };
  for (const Mistake& mistake : mistakes) {
    RendezvousRank coordinator = start(0, 3);
    ScriptedParticipant first(options(1, 3));
    auto mine = options(2, 3);
    mistake.make(mine);
    ScriptedParticipant mistaken(mine, mistake.version);
    coordinator.expect_error(ErrorCode::mismatch, mistake.words);
    for (ScriptedParticipant* participant : {&first, &mistaken})
      EXPECT_TRUE(participant->receive_until(FrameKind::failure)) << mistake.words;
  }
}

TEST_P(RendezvousOverSocket, NamesARankThatIsThereTwiceToAll) {
  RendezvousRank coordinator = start(0, 3);
  RendezvousRank first = start(1, 3);
  RendezvousRank second = start(1, 3);
  for (RendezvousRank* rank : {&coordinator, &first, &second})
    rank->expect_error(ErrorCode::mismatch, "a second process identifies as rank 1");
}

TEST_P(RendezvousOverSocket, NamesARankThatEndsInAnyRoundToAll) {
  for (const std::uint32_t last_round : {0u, 1u, 2u}) {
    RendezvousRank coordinator = start(0, 3);
    RendezvousRank witness = start(2, 3);
    {
      ScriptedParticipant mortal(options(1, 3));
      for (std::uint32_t round = 1; round <= last_round; ++round) {
        mortal.contribute(round);
        ASSERT_TRUE(mortal.receive_until(FrameKind::result_end));
      }
    }
    for (RendezvousRank* rank : {&coordinator, &witness}) rank->expect_error(ErrorCode::peer_lost, "rank 1 ended");
  }
}

TEST_F(Rendezvous, NamesARankThatStopsContributingToAll) {
  limit_ = 2'000ms;
  RendezvousRank coordinator = start(0, 3);
  RendezvousRank witness = start(2, 3);
  ScriptedParticipant silent(options(1, 3));
  silent.contribute();
  for (RendezvousRank* rank : {&coordinator, &witness}) rank->expect_error(ErrorCode::deadline, "of 3 ranks: 1");
}

TEST_F(Rendezvous, SendsTheLastResultAgainToARankThatLostItsConnection) {
  RendezvousRank coordinator = start(0, 2);
  std::optional<ScriptedParticipant> participant(options(1, 2));
  for (std::uint32_t round = 1; round <= 3; ++round) {
    participant->contribute(round);
    ASSERT_TRUE(participant->receive_until(FrameKind::result_end));
    if (round == 3) break;
    participant.emplace(options(1, 2));
    participant->contribute(round);
    ASSERT_TRUE(participant->receive_until(FrameKind::result_end));
  }
  (void)coordinator.expect_joined();
}

TEST_P(RendezvousOverSocket, ReportsToParticipantsThatRankZeroDied) {
  ChildProcess coordinator([&] {
    const auto joined = bootstrap::join_rendezvous(options(0, 2));
    raise(SIGKILL);
  });
  start(1, 2).expect_error(ErrorCode::peer_lost, "rank 0 ended");
}

TEST_F(Rendezvous, ListensAtTheGivenInterfaceOnly) {
  for (const char* interface : {"127.0.0.1", "lo"}) {
    auto mine = options(0, 2);
    mine.endpoint.interface = interface;
    RendezvousRank coordinator(mine);
    (void)RawConnection(mine.endpoint);
    net::Endpoint elsewhere = mine.endpoint;
    elsewhere.address = "127.0.0.2";
    EXPECT_FALSE(net::connect_to(elsewhere, std::chrono::steady_clock::now() + 10s).socket.valid()) << interface;
    (void)start(1, 2).expect_joined();
    (void)coordinator.expect_joined();
  }
}

TEST_F(Rendezvous, ListensAtAllAddressesWithoutAnInterface) {
  auto mine = options(0, 4);
  mine.endpoint.interface = "";
  RendezvousRank coordinator(mine);
  std::vector<RendezvousRank> participants;
  for (const char* address : {"127.0.0.1", "127.0.0.2", "localhost"}) {
    address_ = address;
    participants.push_back(start(static_cast<std::int32_t>(participants.size()) + 1, 4));
  }
  for (RendezvousRank& participant : participants) (void)participant.expect_joined();
  (void)coordinator.expect_joined();
}

TEST_F(Rendezvous, NamesAnInterfaceThatThisMachineDoesNotHave) {
  for (const char* interface : {"no-such0", "192.0.2.1"}) {
    auto mine = options(0, 2);
    mine.endpoint.interface = interface;
    RendezvousRank(mine).expect_error(ErrorCode::invalid_argument, interface);
  }
}

TEST(WorldKey, GivesBothEndsTheSameSessionAndEachPairAndWorldAnother) {
  std::set<std::uint64_t> sessions = {0};
  std::set<std::string> tokens;
  const auto draw = [] {
    return std::vector{bootstrap::draw_nonce(), bootstrap::draw_nonce(), bootstrap::draw_nonce()};
  };
  const auto nonces = draw();
  for (const auto& [secret, drawn] : {std::pair{"a", nonces}, {"b", nonces}, {"a", draw()}}) {
    const bootstrap::WorldKey key(secret, drawn);
    EXPECT_EQ(key.session(RankId(0), RankId(1)), bootstrap::WorldKey(secret, drawn).session(RankId(0), RankId(1)));
    for (std::int32_t from = 0; from < 3; ++from)
      for (std::int32_t to = 0; to < 3; ++to) sessions.insert(key.session(RankId(from), RankId(to)));
    tokens.insert(key.token());
  }
  EXPECT_EQ(sessions.size(), 1u + 3u * 9u);
  EXPECT_EQ(tokens.size(), 3u);
}

}  // namespace
}  // namespace shunt::test
