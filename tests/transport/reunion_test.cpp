// The survivors of a fault meet, whoever was lost, and there is never a second world of them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "support/meeting_ranks.hpp"
#include "transport/net/reunion.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

enum class SeatKind { tcp, local };

/// Ranks with seats, in which threads of the test sit down when it says so. Who is lost is known to all, unless a test
/// says otherwise.
class Reunion : public LeavesNoTrace, public ::testing::WithParamInterface<SeatKind> {
 protected:
  void TearDown() override {
    seatings_.clear();
    LeavesNoTrace::TearDown();
  }

  void seat(std::int32_t size) {
    seatings_.clear();
    std::vector<net::MeetingPlace> places;
    for (std::int32_t rank = 0; rank < size; ++rank) {
      const std::string name = fmt::format("shunt/test/{}/{}", getpid(), rank);
      net::Seat own = GetParam() == SeatKind::tcp ? net::take_seat("127.0.0.1", "") : net::take_local_seat(name);
      places.push_back(own.place);
      seatings_.push_back({RankId(rank), std::move(own), {}, "secret of the world"});
    }
    for (net::Seating& seating : seatings_) seating.places = places;
    gone_ = std::vector<std::atomic<bool>>(static_cast<std::size_t>(size));
  }

  /// Its process ends: it is gone, and nobody listens at its seat.
  void lose(std::int32_t rank) {
    gone_[RankId(rank).index()] = true;
    seatings_[RankId(rank).index()].own = {};
  }

  [[nodiscard]] net::Losses known_losses(std::optional<RankId> named = std::nullopt) {
    return {named, [this](RankId rank) { return gone_[rank.index()].load(); }};
  }

  std::future<MeetingOutcome> start(std::int32_t rank, const net::Losses& losses) {
    return std::async(std::launch::async, [this, rank, losses]() -> MeetingOutcome {
      try {
        return {net::meet_survivors(seatings_[RankId(rank).index()], losses, limit_,
                                    net::bytes_of(fmt::format("card of {}", rank))),
                std::nullopt};
      } catch (const Error& error) {
        return {std::nullopt, error};
      }
    });
  }
  std::future<MeetingOutcome> start(std::int32_t rank) { return start(rank, known_losses()); }

  /// All of them meet, all know the same ones, and they are exactly these.
  static void expect_meeting(std::vector<std::future<MeetingOutcome>> ranks, const std::vector<std::int32_t>& former) {
    std::set<std::string> names;
    for (auto& rank : ranks) {
      const MeetingOutcome outcome = rank.get();
      ASSERT_TRUE(outcome.meeting) << outcome.error->what();
      names.insert(outcome.meeting->name());
      ASSERT_EQ(outcome.meeting->size(), static_cast<std::int32_t>(former.size()));
      for (std::size_t r = 0; r < former.size(); ++r) {
        EXPECT_EQ(outcome.meeting->former(RankId(r)), RankId(former[r]));
        const auto card = outcome.meeting->card(RankId(r));
        EXPECT_EQ(std::string(reinterpret_cast<const char*>(card.data()), card.size()),
                  fmt::format("card of {}", former[r]));
      }
    }
    EXPECT_EQ(names.size(), 1u);
  }
  void expect_meeting_of(const std::vector<std::int32_t>& survivors) {
    std::vector<std::future<MeetingOutcome>> ranks;
    for (const std::int32_t rank : survivors) ranks.push_back(start(rank));
    expect_meeting(std::move(ranks), survivors);
  }

  static void expect_error(std::future<MeetingOutcome>& rank, ErrorCode code, const std::string& words) {
    const MeetingOutcome outcome = rank.get();
    ASSERT_TRUE(outcome.error) << "has met, instead of: " << words;
    EXPECT_EQ(to_string(outcome.error->code()), to_string(code)) << outcome.error->what();
    EXPECT_THAT(outcome.error->what(), HasSubstr(words));
  }

  std::vector<net::Seating> seatings_;
  std::vector<std::atomic<bool>> gone_;
  std::chrono::milliseconds limit_{20'000};
};

TEST_P(Reunion, NumbersTheSurvivorsAnewWhoeverIsLost) {
  for (std::int32_t lost = 0; lost < 4; ++lost) {
    seat(4);
    lose(lost);
    std::vector<std::int32_t> survivors;
    for (std::int32_t rank = 0; rank < 4; ++rank)
      if (rank != lost) survivors.push_back(rank);
    expect_meeting_of(survivors);
  }
}

TEST_P(Reunion, GoesOnWithoutAllThatAreLost) {
  seat(7);
  for (const std::int32_t rank : {0, 1, 5}) lose(rank);
  expect_meeting_of({2, 3, 4, 6});
}

TEST_P(Reunion, WaitsForASurvivorThatComesLate) {
  seat(4);
  lose(0);
  std::vector<std::future<MeetingOutcome>> ranks;
  for (const std::int32_t rank : {2, 3, 1}) {  // the host last
    ranks.push_back(start(rank));
    std::this_thread::sleep_for(100ms);
  }
  expect_meeting(std::move(ranks), {1, 2, 3});
}

TEST_P(Reunion, GoesOnWithoutAHostThatIsLostBeforeItComes) {
  seat(4);
  lose(3);
  std::vector<std::future<MeetingOutcome>> ranks;
  for (const std::int32_t rank : {1, 2}) ranks.push_back(start(rank));
  std::this_thread::sleep_for(100ms);  // they wait for rank 0, which lives
  lose(0);
  // A half, and rank 0 is not in it.
  for (auto& rank : ranks) expect_error(rank, ErrorCode::minority, "only 2 of 4 ranks");

  seat(5);
  lose(3);
  ranks.clear();
  for (const std::int32_t rank : {1, 2, 4}) ranks.push_back(start(rank));
  std::this_thread::sleep_for(100ms);
  lose(0);
  expect_meeting(std::move(ranks), {1, 2, 4});
}

TEST_P(Reunion, OfExactlyAHalfNeedsRankZero) {
  seat(4);
  for (const std::int32_t rank : {2, 3}) lose(rank);
  expect_meeting_of({0, 1});
  seat(2);
  lose(1);
  expect_meeting_of({0});
  seat(2);
  lose(0);
  auto rank = start(1);
  expect_error(rank, ErrorCode::minority, "only 1 of 2 ranks");
}

TEST_P(Reunion, OfTwoSidesThatCantReachEachOtherIsOfOneOnly) {
  seat(5);
  const auto sees_only = [](std::set<std::int32_t> side) {
    return net::Losses{std::nullopt, [side](RankId rank) { return !side.contains(rank.value); }};
  };
  std::vector<std::future<MeetingOutcome>> few;
  for (const std::int32_t rank : {0, 1}) few.push_back(start(rank, sees_only({0, 1})));
  std::vector<std::future<MeetingOutcome>> many;
  for (const std::int32_t rank : {2, 3, 4}) many.push_back(start(rank, sees_only({2, 3, 4})));
  for (auto& rank : few) expect_error(rank, ErrorCode::minority, "only 2 of 5 ranks");
  expect_meeting(std::move(many), {2, 3, 4});
}

TEST_P(Reunion, WelcomesWhomTheFaultNamesIfItComes) {
  seat(3);
  // Rank 0 was stopped, and lives again. It holds no meeting, as the others don't look for it.
  std::vector<std::future<MeetingOutcome>> ranks;
  for (const std::int32_t rank : {0, 1}) ranks.push_back(start(rank, known_losses(RankId(0))));
  std::this_thread::sleep_for(1s);
  ranks.push_back(start(2, known_losses(RankId(0))));
  expect_meeting(std::move(ranks), {0, 1, 2});
}

TEST_P(Reunion, IsOverForWhoComesTooLate) {
  seat(4);
  std::vector<std::future<MeetingOutcome>> ranks;
  for (const std::int32_t rank : {0, 1, 2}) ranks.push_back(start(rank, known_losses(RankId(3))));
  expect_meeting(std::move(ranks), {0, 1, 2});
  // They have a new world and left the old one.
  for (const std::int32_t rank : {0, 1, 2}) lose(rank);
  auto late = start(3, known_losses(RankId(3)));
  expect_error(late, ErrorCode::minority, "finds none of the 3 other ranks");
  auto unaware = start(3);
  expect_error(unaware, ErrorCode::minority, "only 1 of 4 ranks");
}

TEST_P(Reunion, GoesOnWithoutASurvivorThatDoesNotComeInTime) {
  limit_ = 500ms;
  seat(4);
  expect_meeting_of({0, 1, 2});  // rank 3 lives, and computes for ever
}

// Another one is lost when the survivors have met and the new world does not stand yet.
TEST_P(Reunion, IsHeldAgainUntilThereIsANewWorld) {
  seat(4);
  lose(3);
  expect_meeting_of({0, 1, 2});
  lose(1);
  expect_meeting_of({0, 2});
}

TEST_P(Reunion, IsHeldOnce) {
  seat(1);
  lose(0);
  auto rank = start(0);
  expect_error(rank, ErrorCode::invalid_argument, "a world is rebuilt once");
}

TEST_P(Reunion, IsNotDelayedByStrangersAtEverySeat) {
  seat(3);
  lose(0);
  std::vector<Caller> strangers;
  for (const std::int32_t rank : {1, 2, 1, 2}) {
    strangers.emplace_back(seatings_[RankId(rank).index()].own.place);
    strangers.back().send(strangers.size() % 2 == 0 ? std::string(500, 'x') : "GET /");
  }
  expect_meeting_of({1, 2});
}

TEST_P(Reunion, RefusesRanksOfAnotherWorld) {
  seat(3);
  lose(2);
  seatings_[1].token = "secret of another world";
  auto host = start(0);
  auto other = start(1);
  expect_error(other, ErrorCode::invalid_argument, "does not accept the token");
  lose(1);
  expect_error(host, ErrorCode::minority, "only 1 of 3 ranks");
}

INSTANTIATE_TEST_SUITE_P(OverEverySocket, Reunion, ::testing::Values(SeatKind::tcp, SeatKind::local),
                         [](const auto& of) { return of.param == SeatKind::tcp ? "Tcp" : "Local"; });

}  // namespace
}  // namespace shunt::test
