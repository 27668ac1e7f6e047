// The survivors of a fault find each other, whoever was lost, and there is never a second world of them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "support/rendezvous_ranks.hpp"
#include "transport/bootstrap/survivors.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

enum class SocketKind { tcp, local };

/// Ranks that listen, and join when the test says so. Who is lost is known to all, unless a test
/// says otherwise.
class Survivors : public LeavesNoTrace, public ::testing::WithParamInterface<SocketKind> {
 protected:
  void TearDown() override {
    contacts_.clear();
    LeavesNoTrace::TearDown();
  }

  void prepare(std::int32_t size) {
    contacts_.clear();
    std::vector<net::Endpoint> endpoints;
    for (std::int32_t rank = 0; rank < size; ++rank) {
      const std::string name = fmt::format("shunt/test/{}/{}", getpid(), rank);
      net::Listener own =
          GetParam() == SocketKind::tcp ? net::open_listener("127.0.0.1", "") : net::open_local_listener(name);
      endpoints.push_back(own.endpoint);
      contacts_.push_back({RankId(rank), std::move(own), {}, "secret of the world"});
    }
    for (bootstrap::SurvivorContacts& contacts : contacts_) contacts.endpoints = endpoints;
    gone_ = std::vector<std::atomic<bool>>(static_cast<std::size_t>(size));
  }

  /// Its process ends: it is gone, and nobody listens in its place.
  void lose(std::int32_t rank) {
    gone_[RankId(rank).index()] = true;
    contacts_[RankId(rank).index()].own = {};
  }

  [[nodiscard]] bootstrap::Losses known_losses(std::optional<RankId> named = std::nullopt) {
    return {named, [this](RankId rank) { return gone_[rank.index()].load(); }};
  }

  std::future<JoinOutcome> start(std::int32_t rank, const bootstrap::Losses& losses) {
    return std::async(std::launch::async, [this, rank, losses] {
      return join_and_gather([&] { return bootstrap::join_survivors(contacts_[RankId(rank).index()], losses, limit_); },
                             fmt::format("text of {}", rank), limit_);
    });
  }
  std::future<JoinOutcome> start(std::int32_t rank) { return start(rank, known_losses()); }

  /// All of them join, all know the same ones, and they are exactly these.
  static void expect_joined(std::vector<std::future<JoinOutcome>> ranks, const std::vector<std::int32_t>& former) {
    std::vector<RankId> members;
    std::vector<std::string> texts;
    for (const std::int32_t rank : former) {
      members.emplace_back(rank);
      texts.push_back(fmt::format("text of {}", rank));
    }
    for (auto& rank : ranks) {
      const JoinOutcome outcome = rank.get();
      ASSERT_TRUE(outcome.gathered) << outcome.error->what();
      EXPECT_EQ(outcome.gathered->members, members);
      EXPECT_EQ(outcome.gathered->texts, texts);
    }
  }
  void expect_joined_by(const std::vector<std::int32_t>& survivors) {
    std::vector<std::future<JoinOutcome>> ranks;
    for (const std::int32_t rank : survivors) ranks.push_back(start(rank));
    expect_joined(std::move(ranks), survivors);
  }

  static void expect_error(std::future<JoinOutcome>& rank, ErrorCode code, const std::string& words) {
    const JoinOutcome outcome = rank.get();
    ASSERT_TRUE(outcome.error) << "has joined, instead of: " << words;
    EXPECT_EQ(to_string(outcome.error->code()), to_string(code)) << outcome.error->what();
    EXPECT_THAT(outcome.error->what(), HasSubstr(words));
  }

  std::vector<bootstrap::SurvivorContacts> contacts_;
  std::vector<std::atomic<bool>> gone_;
  std::chrono::milliseconds limit_{20'000};
};

TEST_P(Survivors, AreNumberedAnewWhoeverIsLost) {
  for (std::int32_t lost = 0; lost < 4; ++lost) {
    prepare(4);
    lose(lost);
    std::vector<std::int32_t> survivors;
    for (std::int32_t rank = 0; rank < 4; ++rank)
      if (rank != lost) survivors.push_back(rank);
    expect_joined_by(survivors);
  }
}

TEST_P(Survivors, GoOnWithoutAllThatAreLost) {
  prepare(7);
  for (const std::int32_t rank : {0, 1, 5}) lose(rank);
  expect_joined_by({2, 3, 4, 6});
}

TEST_P(Survivors, WaitForOneThatComesLate) {
  prepare(4);
  lose(0);
  std::vector<std::future<JoinOutcome>> ranks;
  for (const std::int32_t rank : {2, 3, 1}) {  // the coordinator last
    ranks.push_back(start(rank));
    std::this_thread::sleep_for(100ms);
  }
  expect_joined(std::move(ranks), {1, 2, 3});
}

TEST_P(Survivors, GoOnWithoutACoordinatorThatIsLostBeforeItComes) {
  prepare(4);
  lose(3);
  std::vector<std::future<JoinOutcome>> ranks;
  for (const std::int32_t rank : {1, 2}) ranks.push_back(start(rank));
  std::this_thread::sleep_for(100ms);  // they wait for rank 0, which lives
  lose(0);
  // A half, and rank 0 is not in it.
  for (auto& rank : ranks) expect_error(rank, ErrorCode::minority, "only 2 of 4 ranks");

  prepare(5);
  lose(3);
  ranks.clear();
  for (const std::int32_t rank : {1, 2, 4}) ranks.push_back(start(rank));
  std::this_thread::sleep_for(100ms);
  lose(0);
  expect_joined(std::move(ranks), {1, 2, 4});
}

TEST_P(Survivors, ThatAreExactlyAHalfNeedRankZero) {
  prepare(4);
  for (const std::int32_t rank : {2, 3}) lose(rank);
  expect_joined_by({0, 1});
  prepare(2);
  lose(1);
  expect_joined_by({0});
  prepare(2);
  lose(0);
  auto rank = start(1);
  expect_error(rank, ErrorCode::minority, "only 1 of 2 ranks");
}

TEST_P(Survivors, OnTwoSidesThatCantReachEachOtherJoinOnOneOnly) {
  prepare(5);
  const auto sees_only = [](std::set<std::int32_t> side) {
    return bootstrap::Losses{std::nullopt, [side](RankId rank) { return !side.contains(rank.value); }};
  };
  std::vector<std::future<JoinOutcome>> few;
  for (const std::int32_t rank : {0, 1}) few.push_back(start(rank, sees_only({0, 1})));
  std::vector<std::future<JoinOutcome>> many;
  for (const std::int32_t rank : {2, 3, 4}) many.push_back(start(rank, sees_only({2, 3, 4})));
  for (auto& rank : few) expect_error(rank, ErrorCode::minority, "only 2 of 5 ranks");
  expect_joined(std::move(many), {2, 3, 4});
}

TEST_P(Survivors, IncludeWhomTheFaultNamesIfItComes) {
  prepare(3);
  // Rank 0 was stopped, and lives again. It does not coordinate, as the others don't look for it.
  std::vector<std::future<JoinOutcome>> ranks;
  for (const std::int32_t rank : {0, 1}) ranks.push_back(start(rank, known_losses(RankId(0))));
  std::this_thread::sleep_for(1s);
  ranks.push_back(start(2, known_losses(RankId(0))));
  expect_joined(std::move(ranks), {0, 1, 2});
}

TEST_P(Survivors, RefuseWhoComesTooLate) {
  prepare(4);
  std::vector<std::future<JoinOutcome>> ranks;
  for (const std::int32_t rank : {0, 1, 2}) ranks.push_back(start(rank, known_losses(RankId(3))));
  expect_joined(std::move(ranks), {0, 1, 2});
  // They have a new world and left the old one.
  for (const std::int32_t rank : {0, 1, 2}) lose(rank);
  auto late = start(3, known_losses(RankId(3)));
  expect_error(late, ErrorCode::minority, "finds none of the 3 other ranks");
  auto unaware = start(3);
  expect_error(unaware, ErrorCode::minority, "only 1 of 4 ranks");
}

TEST_P(Survivors, GoOnWithoutOneThatDoesNotComeInTime) {
  limit_ = 500ms;
  prepare(4);
  expect_joined_by({0, 1, 2});  // rank 3 lives, and computes for ever
}

// Another one is lost when the survivors have found each other and the new world does not stand yet.
TEST_P(Survivors, JoinAgainUntilThereIsANewWorld) {
  prepare(4);
  lose(3);
  expect_joined_by({0, 1, 2});
  lose(1);
  expect_joined_by({0, 2});
}

TEST_P(Survivors, JoinOnce) {
  prepare(1);
  lose(0);
  auto rank = start(0);
  expect_error(rank, ErrorCode::invalid_argument, "a world is rebuilt once");
}

TEST_P(Survivors, AreNotDelayedByStrangersAtEveryListener) {
  prepare(3);
  lose(0);
  std::vector<Caller> strangers;
  for (const std::int32_t rank : {1, 2, 1, 2}) {
    strangers.emplace_back(contacts_[RankId(rank).index()].own.endpoint);
    strangers.back().send(strangers.size() % 2 == 0 ? std::string(500, 'x') : "GET /");
  }
  expect_joined_by({1, 2});
}

TEST_P(Survivors, RefuseRanksOfAnotherWorld) {
  prepare(3);
  lose(2);
  contacts_[1].token = "secret of another world";
  auto coordinator = start(0);
  auto other = start(1);
  expect_error(other, ErrorCode::invalid_argument, "does not accept the token");
  lose(1);
  expect_error(coordinator, ErrorCode::minority, "only 1 of 3 ranks");
}

INSTANTIATE_TEST_SUITE_P(OverEverySocket, Survivors, ::testing::Values(SocketKind::tcp, SocketKind::local),
                         [](const auto& of) { return of.param == SocketKind::tcp ? "Tcp" : "Local"; });

}  // namespace
}  // namespace shunt::test
