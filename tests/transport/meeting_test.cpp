// Ranks of several hosts meet at rank 0, or learn why not.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <set>
#include <thread>

#include "support/child_process.hpp"
#include "support/meddling_proxy.hpp"
#include "support/meeting_ranks.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

std::string card_of(std::int32_t rank) { return fmt::format("card of rank {}", rank); }

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class Meeting : public MeetingTest {
 protected:
  /// All ranks in this order; what each knows afterwards, by rank.
  std::vector<net::Meeting> meet(const std::vector<std::int32_t>& order) {
    const auto size = static_cast<std::int32_t>(order.size());
    std::vector<std::optional<MeetingRank>> ranks(order.size());
    for (const std::int32_t rank : order) ranks[RankId(rank).index()].emplace(options(rank, size), card_of(rank));
    std::vector<net::Meeting> meetings;
    for (auto& rank : ranks) meetings.push_back(rank->expect_meeting());
    return meetings;
  }
  std::vector<net::Meeting> meet(std::int32_t size) {
    std::vector<std::int32_t> order;
    for (std::int32_t rank = 0; rank < size; ++rank) order.push_back(rank);
    return meet(order);
  }
};

void expect_same_cards_and_name(const std::vector<net::Meeting>& meetings) {
  for (const net::Meeting& meeting : meetings) {
    EXPECT_EQ(meeting.name(), meetings.front().name());
    for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(meetings.size()); ++rank)
      EXPECT_EQ(text_of(meeting.card(RankId(rank))), card_of(rank));
  }
}

class MeetingOfSize : public Meeting, public ::testing::WithParamInterface<std::tuple<const char*, std::int32_t>> {
 protected:
  void SetUp() override {
    address_ = std::get<0>(GetParam());
    port_ = FreePort(address_);
    Meeting::SetUp();
  }
};

TEST_P(MeetingOfSize, GivesAllCardsToAllRanks) {
  if (!port_.valid()) GTEST_SKIP() << "this host does not have the address " << address_;
  expect_same_cards_and_name(meet(std::get<1>(GetParam())));
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<const char*, std::int32_t>>& info) {
  return fmt::format("{}Ranks{}", std::get<1>(info.param), std::get<0>(info.param)[0] == ':' ? "V6" : "V4");
}

INSTANTIATE_TEST_SUITE_P(AtEveryAddress, MeetingOfSize,
                         ::testing::Combine(::testing::Values("127.0.0.1", "::1"), ::testing::Values(1, 2, 7, 64)),
                         name_of);

TEST_F(Meeting, IsFoundAtTheFirstOfSeveralAddressesThatAnswers) {
  MeetingRank host = start(0, 2);
  net::MeetingOptions searching = options(1, 2);
  searching.place.address = "no.such.host.invalid,127.0.0.77,127.0.0.1";
  (void)MeetingRank(searching).expect_meeting();
  (void)host.expect_meeting();
}

TEST_F(Meeting, BringsRanksTogetherInWhateverOrderTheyCome) {
  for (const auto& order : {std::vector{0, 1, 2, 3}, std::vector{3, 1, 0, 2}, std::vector{1, 2, 3, 0}})
    expect_same_cards_and_name(meet(order));
}

TEST_F(Meeting, BringsProcessesTogether) {
  std::vector<ChildProcess> ranks;
  for (std::int32_t rank = 6; rank >= 0; --rank)
    ranks.emplace_back([&] { (void)net::meet(options(rank, 7), net::bytes_of(card_of(rank))); });
  for (ChildProcess& rank : ranks) {
    const auto end = rank.wait();
    ASSERT_TRUE(end) << "hangs";
    EXPECT_TRUE(end->returned) << end->error;
  }
}

TEST_F(Meeting, CarriesCardsOfEveryAllowedLength) {
  const std::string longest(std::size_t{1} << 20, 'x');
  const std::vector<std::string> cards = {"", longest, "x", longest};
  std::vector<MeetingRank> ranks;
  for (std::int32_t rank = 0; rank < 4; ++rank) ranks.emplace_back(options(rank, 4), cards[RankId(rank).index()]);
  for (MeetingRank& rank : ranks) {
    const net::Meeting meeting = rank.expect_meeting();
    for (std::int32_t peer = 0; peer < 4; ++peer)
      EXPECT_TRUE(text_of(meeting.card(RankId(peer))) == cards[RankId(peer).index()]) << "of rank " << peer;
  }
  MeetingRank(options(0, 2), longest + "y").expect_error(ErrorCode::invalid_argument, "1048577 bytes");
}

TEST_F(Meeting, GivesBothEndsTheSameSessionAndEachPairAndMeetingAnother) {
  std::set<net::SessionId> sessions = {0};
  std::size_t num_sessions = 1;
  for (number_ = 0; number_ < 2; ++number_) {
    const auto meetings = meet(4);
    for (std::int32_t from = 0; from < 4; ++from) {
      for (std::int32_t to = 0; to < 4; ++to) {
        const auto id = meetings.front().session(RankId(from), RankId(to));
        for (const net::Meeting& meeting : meetings) EXPECT_EQ(meeting.session(RankId(from), RankId(to)), id);
        sessions.insert(id);
        ++num_sessions;
      }
    }
  }
  EXPECT_EQ(sessions.size(), num_sessions);
}

TEST_F(Meeting, IsNamedDifferentlyEachTime) { EXPECT_NE(meet(3).front().name(), meet(3).front().name()); }

TEST_F(Meeting, FollowsAnotherAtOnceAtTheSamePort) {
  constexpr std::int32_t kSize = 5;
  constexpr std::uint32_t kNumMeetings = 20;
  const auto meet_again_and_again = [&](std::int32_t rank) {
    net::MeetingOptions mine = options(rank, kSize);
    for (mine.number = 0; mine.number < kNumMeetings; ++mine.number) (void)net::meet(mine, {});
  };
  std::vector<std::future<void>> ranks;
  for (std::int32_t rank = 0; rank < kSize; ++rank)
    ranks.push_back(std::async(std::launch::async, meet_again_and_again, rank));
  for (auto& rank : ranks) EXPECT_NO_THROW(rank.get());
}

TEST_F(Meeting, RefusesAnEmptyToken) {
  token_ = "";
  for (const std::int32_t rank : {0, 1}) start(rank, 2).expect_error(ErrorCode::invalid_argument, "token");
  start(0, 1).expect_error(ErrorCode::invalid_argument, "token");
}

TEST_F(Meeting, RefusesARankOutsideTheWorld) {
  for (const std::int32_t rank : {-1, 2}) start(rank, 2).expect_error(ErrorCode::invalid_argument, "2 ranks");
}

TEST_F(Meeting, RefusesAWrongTokenInOneLineWithoutItWhileTheOthersMeet) {
  testing::internal::CaptureStderr();
  MeetingRank host = start(0, 3);
  MeetingRank first = start(1, 3);
  net::MeetingOptions mistaken = options(2, 3);
  mistaken.token = "open barley";
  MeetingRank(mistaken).expect_error(ErrorCode::invalid_argument, "does not accept the token of rank 2");
  MeetingRank second = start(2, 3);
  for (MeetingRank* rank : {&host, &first, &second}) (void)rank->expect_meeting();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_THAT(log, HasSubstr("rank 2"));
  EXPECT_THAT(log, HasSubstr("127.0.0.1:"));
  EXPECT_THAT(log, Not(HasSubstr("open")));
}

TEST_F(Meeting, WritesFewLinesAboutManyWrongTokens) {
  testing::internal::CaptureStderr();
  MeetingRank host = start(0, 2);
  net::MeetingOptions mistaken = options(1, 2);
  mistaken.token = "open barley";
  for (int i = 0; i < 30; ++i) MeetingRank(mistaken).expect_error(ErrorCode::invalid_argument, "does not accept");
  MeetingRank guest = start(1, 2);
  for (MeetingRank* rank : {&host, &guest}) (void)rank->expect_meeting();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 8) << log;
}

TEST_F(Meeting, RefusesAnotherJobAtTheSamePortAndGoesOn) {
  testing::internal::CaptureStderr();
  MeetingRank host = start(0, 2);
  (void)Caller(options(1, 2).place);  // it listens
  token_ = "another job's";
  start(0, 2).expect_error(ErrorCode::system, "can't listen");
  start(1, 2).expect_error(ErrorCode::invalid_argument, "rank 0 at 127.0.0.1:");
  token_ = "open sesame";
  MeetingRank guest = start(1, 2);
  for (MeetingRank* rank : {&host, &guest}) (void)rank->expect_meeting();
  testing::internal::GetCapturedStderr();
}

TEST_F(Meeting, NamesTheMissingRanksToAllThatCame) {
  limit_ = 2'000ms;
  MeetingRank host = start(0, 4);
  MeetingRank guest = start(2, 4);
  for (MeetingRank* rank : {&host, &guest}) rank->expect_error(ErrorCode::deadline, "of 4 ranks: 1, 3");
}

TEST_F(Meeting, NamesAFewOfManyMissingRanks) {
  limit_ = 50ms;
  start(0, 4000).expect_error(ErrorCode::deadline,
                              "ranks: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 3983 more");
}

TEST_F(Meeting, NamesAMissingRankZeroAndWhatHappensThere) {
  limit_ = 200ms;
  start(1, 2).expect_error(ErrorCode::deadline, "rank 0 of 2 at 127.0.0.1:");
}

// Unlike a rank 0 that is not there yet, which ends with the deadline.
TEST_F(Meeting, DoesNotWaitForANameThatDoesNotExist) {
  address_ = "no such host,nor this one";
  start(1, 2).expect_error(ErrorCode::invalid_argument, "rank 1 can't find rank 0 of 2 at no such host,nor this one:");
}

TEST_F(Meeting, NamesAGuestThatBelievesInAnotherSizeToAll) {
  MeetingRank host = start(0, 3);
  PuppetGuest first(options(1, 3));
  start(2, 4).expect_error(ErrorCode::mismatch, "rank 2 believes in 4 ranks, rank 0 in 3");
  host.expect_error(ErrorCode::mismatch, "rank 2 believes in 4 ranks, rank 0 in 3");
  EXPECT_TRUE(first.receive_until(net::FrameKind::failure));
}

TEST_F(Meeting, NamesAGuestThatComesToAnotherMeetingToAll) {
  MeetingRank host = start(0, 3);
  PuppetGuest first(options(1, 3));
  number_ = 1;
  start(2, 3).expect_error(ErrorCode::mismatch, "rank 2 comes to meeting 1 of the job, rank 0 holds meeting 0");
  host.expect_error(ErrorCode::mismatch, "rank 2 comes to meeting 1");
  EXPECT_TRUE(first.receive_until(net::FrameKind::failure));
}

TEST_F(Meeting, NamesAGuestOfAnotherVersionToAll) {
  MeetingRank host = start(0, 3);
  PuppetGuest first(options(1, 3));
  PuppetGuest newer(options(2, 3), net::kProtocolVersion + 1);
  host.expect_error(ErrorCode::mismatch, "rank 2 speaks version 2");
  for (PuppetGuest* guest : {&first, &newer}) EXPECT_TRUE(guest->receive_until(net::FrameKind::failure));
}

TEST_F(Meeting, NamesAGuestOfAnImpossibleRankToAll) {
  for (const std::int32_t rank : {-1, 0, 3}) {
    MeetingRank host = start(0, 3);
    PuppetGuest impossible(options(rank, 3));
    host.expect_error(ErrorCode::mismatch, fmt::format("says that it is rank {} of 3", rank));
    EXPECT_TRUE(impossible.receive_until(net::FrameKind::failure));
  }
}

TEST_F(Meeting, NamesARankThatIsThereTwiceToAll) {
  MeetingRank host = start(0, 3);
  MeetingRank first = start(1, 3);
  MeetingRank second = start(1, 3);
  for (MeetingRank* rank : {&host, &first, &second})
    rank->expect_error(ErrorCode::mismatch, "a second process says that it is rank 1");
}

TEST_F(Meeting, NamesARankThatDiesBeforeAllHaveComeToAllThatCame) {
  MeetingRank host = start(0, 4);
  MeetingRank witness = start(2, 4);
  {
    PuppetGuest mortal(options(1, 4));
    mortal.send(net::FrameKind::card);
  }
  for (MeetingRank* rank : {&host, &witness}) rank->expect_error(ErrorCode::peer_lost, "rank 1 ended");
}

TEST_F(Meeting, NamesARankThatDiesWhileCardsAreHandedOutToAll) {
  MeetingRank host = start(0, 3);
  MeetingRank witness = start(2, 3);
  {
    PuppetGuest mortal(options(1, 3));
    mortal.send(net::FrameKind::card);
    ASSERT_TRUE(mortal.receive_until(net::FrameKind::roster_end));
  }
  for (MeetingRank* rank : {&host, &witness}) rank->expect_error(ErrorCode::peer_lost, "rank 1 ended");
}

TEST_F(Meeting, NamesARankThatFallsSilentWhileCardsAreHandedOutToAll) {
  limit_ = 2'000ms;
  MeetingRank host = start(0, 3);
  MeetingRank witness = start(2, 3);
  PuppetGuest silent(options(1, 3));
  silent.send(net::FrameKind::card);
  for (MeetingRank* rank : {&host, &witness}) rank->expect_error(ErrorCode::deadline, "fell silent: 1");
}

TEST_F(Meeting, HasTimeToHandOutCardsThoughTheLastGuestCameLate) {
  limit_ = 4'000ms;
  MeetingRank host = start(0, 3);
  MeetingRank witness = start(2, 3);
  PuppetGuest slow(options(1, 3));
  std::this_thread::sleep_for(3'000ms);
  slow.send(net::FrameKind::card);
  ASSERT_TRUE(slow.receive_until(net::FrameKind::roster_end));
  std::this_thread::sleep_for(2'700ms);  // now the time to come is over for all
  slow.send(net::FrameKind::received);
  (void)host.expect_meeting();
  (void)witness.expect_meeting();
}

TEST_F(Meeting, TellsGuestsThatRankZeroDied) {
  ChildProcess host([&] { (void)net::meet(options(0, 3), {}); });
  const FreePort proxy_port;
  net::MeetingOptions through_proxy = options(1, 3);
  through_proxy.place.port = proxy_port.number();
  MeddlingProxy proxy(through_proxy.place, options(1, 3).place);
  MeetingRank guest(through_proxy);
  (void)proxy.await_recording(net::kClaimBytes + sizeof(net::Digest) + 1);  // it was welcome and has sent its card
  host.kill(SIGKILL);
  guest.expect_error(ErrorCode::peer_lost, "rank 0 ended");
}

TEST_F(Meeting, TakesPlaceAtTheInterfaceThatItIsGivenOnly) {
  for (const char* interface : {"127.0.0.1", "lo"}) {
    net::MeetingOptions mine = options(0, 2);
    mine.place.interface = interface;
    MeetingRank host(mine);
    (void)Caller(mine.place);
    net::MeetingPlace elsewhere = mine.place;
    elsewhere.address = "127.0.0.2";
    EXPECT_FALSE(net::connect_to(elsewhere, std::chrono::steady_clock::now() + 10s).socket.valid()) << interface;
    (void)start(1, 2).expect_meeting();
    (void)host.expect_meeting();
  }
}

TEST_F(Meeting, TakesPlaceEverywhereIfItIsGivenNoInterface) {
  net::MeetingOptions mine = options(0, 4);
  mine.place.interface = "";
  MeetingRank host(mine);
  std::vector<MeetingRank> guests;
  for (const char* address : {"127.0.0.1", "127.0.0.2", "localhost"}) {
    address_ = address;
    guests.push_back(start(static_cast<std::int32_t>(guests.size()) + 1, 4));
  }
  for (MeetingRank& guest : guests) (void)guest.expect_meeting();
  (void)host.expect_meeting();
}

TEST_F(Meeting, SaysThatThisHostHasNoSuchInterface) {
  for (const char* interface : {"no-such0", "192.0.2.1"}) {
    net::MeetingOptions mine = options(0, 2);
    mine.place.interface = interface;
    MeetingRank(mine).expect_error(ErrorCode::invalid_argument, interface);
  }
}

}  // namespace
}  // namespace shunt::test
