// The survivors of a fault find each other, whichever rank was lost, and never form two worlds.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <thread>

#include "support/raw_connection.hpp"
#include "support/rendezvous_ranks.hpp"
#include "transport/bootstrap/survivors.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;

enum class SocketKind { tcp, local };

/// Ranks that listen, and join when the test starts them. All know the lost ranks, unless a test gives others.
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
      const std::string name = fmt::format("@shunt/test/{}/{}", getpid(), rank);
      net::Listener own =
          GetParam() == SocketKind::tcp ? net::open_listener("127.0.0.1", "") : net::open_local_listener(name);
      endpoints.push_back(own.endpoint);
      contacts_.push_back({RankId(rank), std::move(own), {}, "secret of the world"});
    }
    for (bootstrap::SurvivorContacts& contacts : contacts_) contacts.endpoints = endpoints;
    gone_ = std::vector<std::atomic<bool>>(static_cast<std::size_t>(size));
  }

  /// The rank's process ends, and its listener with it.
  void lose(std::int32_t rank) {
    gone_[RankId(rank).index()] = true;
    contacts_[RankId(rank).index()].own = {};
  }

  [[nodiscard]] bootstrap::Losses known_losses(std::optional<RankId> named = std::nullopt) {
    return {named, [this](RankId rank) { return gone_[rank.index()].load(); }};
  }

  RendezvousRank start(std::int32_t rank, const bootstrap::Losses& losses) {
    return {[this, rank, losses] { return join_survivors(contacts_[RankId(rank).index()], losses, limit_); },
            fmt::format("text of {}", rank), limit_};
  }
  RendezvousRank start(std::int32_t rank) { return start(rank, known_losses()); }
  std::vector<RendezvousRank> start_all(const std::vector<std::int32_t>& ranks, const bootstrap::Losses& losses) {
    std::vector<RendezvousRank> started;
    for (const std::int32_t rank : ranks) started.push_back(start(rank, losses));
    return started;
  }

  /// All of them join, and the members are exactly these.
  static void expect_joined(std::vector<RendezvousRank> ranks, const std::vector<std::int32_t>& former) {
    std::vector<RankId> members;
    std::vector<std::string> texts;
    for (const std::int32_t rank : former) {
      members.emplace_back(rank);
      texts.push_back(fmt::format("text of {}", rank));
    }
    for (RendezvousRank& rank : ranks) {
      const JoinOutcome outcome = rank.expect_joined();
      EXPECT_EQ(outcome.members, members);
      EXPECT_EQ(outcome.texts, texts);
    }
  }
  void expect_joined_by(const std::vector<std::int32_t>& survivors) {
    expect_joined(start_all(survivors, known_losses()), survivors);
  }
  /// Of so many ranks these are lost, and the others join.
  void expect_others_join(std::int32_t size, const std::set<std::int32_t>& lost) {
    prepare(size);
    std::vector<std::int32_t> survivors;
    for (std::int32_t rank = 0; rank < size; ++rank) lost.contains(rank) ? lose(rank) : survivors.push_back(rank);
    expect_joined_by(survivors);
  }
  /// Returns once this rank looks for rank 0, whose listener has a connection to accept.
  void await_connection_to_rank_0() {
    pollfd entry = {contacts_[0].own.socket.get(), POLLIN, 0};
    ASSERT_TRUE(wait_ready(std::span(&entry, 1), std::chrono::steady_clock::now() + 20s));
  }

  std::vector<bootstrap::SurvivorContacts> contacts_;
  std::vector<std::atomic<bool>> gone_;
  std::chrono::milliseconds limit_{20'000};
};

TEST_P(Survivors, AreNumberedAnewWhicheverRanksAreLost) {
  for (std::int32_t lost = 0; lost < 4; ++lost) expect_others_join(4, {lost});
  expect_others_join(7, {0, 1, 5});
}

TEST_P(Survivors, WaitForACoordinatorThatComesLast) {
  prepare(4);
  lose(3);
  std::vector<RendezvousRank> ranks = start_all({1, 2}, known_losses());
  await_connection_to_rank_0();
  ranks.push_back(start(0));
  expect_joined(std::move(ranks), {0, 1, 2});
}

TEST_P(Survivors, GoOnWithoutACoordinatorThatIsLostBeforeItComes) {
  const auto lose_rank_0_late = [&](std::int32_t size, const std::vector<std::int32_t>& survivors) {
    prepare(size);
    lose(3);
    std::vector<RendezvousRank> ranks = start_all(survivors, known_losses());
    await_connection_to_rank_0();
    lose(0);
    return ranks;
  };
  // A half, and rank 0 is not in it.
  for (RendezvousRank& rank : lose_rank_0_late(4, {1, 2})) rank.expect_error(ErrorCode::minority, "only 2 of 4 ranks");
  expect_joined(lose_rank_0_late(5, {1, 2, 4}), {1, 2, 4});
}

TEST_P(Survivors, ThatAreExactlyAHalfNeedRankZero) {
  expect_others_join(4, {2, 3});
  expect_others_join(2, {1});
  prepare(2);
  lose(0);
  start(1).expect_error(ErrorCode::minority, "only 1 of 2 ranks");
}

TEST_P(Survivors, OnTwoSidesThatCantReachEachOtherJoinOnOneOnly) {
  prepare(5);
  const auto sees_only = [](std::set<std::int32_t> side) {
    return bootstrap::Losses{std::nullopt, [side](RankId rank) { return !side.contains(rank.value); }};
  };
  std::vector<RendezvousRank> few = start_all({0, 1}, sees_only({0, 1}));
  std::vector<RendezvousRank> many = start_all({2, 3, 4}, sees_only({2, 3, 4}));
  for (RendezvousRank& rank : few) rank.expect_error(ErrorCode::minority, "only 2 of 5 ranks");
  expect_joined(std::move(many), {2, 3, 4});
}

TEST_P(Survivors, IncludeTheRankThatTheFaultNamesIfItComes) {
  prepare(3);
  // Rank 0 was stopped, and lives again. It does not coordinate, as the others don't look for it.
  std::vector<RendezvousRank> ranks = start_all({0, 1}, known_losses(RankId(0)));
  std::this_thread::sleep_for(1s);  // they must wait for rank 2; nothing shows that they do
  ranks.push_back(start(2, known_losses(RankId(0))));
  expect_joined(std::move(ranks), {0, 1, 2});
}

TEST_P(Survivors, RefuseARankThatComesTooLate) {
  prepare(4);
  expect_joined(start_all({0, 1, 2}, known_losses(RankId(3))), {0, 1, 2});
  // They have a new world and left the old one.
  for (const std::int32_t rank : {0, 1, 2}) lose(rank);
  start(3, known_losses(RankId(3))).expect_error(ErrorCode::minority, "finds none of the 3 other ranks");
  start(3).expect_error(ErrorCode::minority, "only 1 of 4 ranks");
}

TEST_P(Survivors, GoOnWithoutOneThatDoesNotComeInTime) {
  limit_ = 500ms;
  prepare(4);
  expect_joined_by({0, 1, 2});  // rank 3 lives, but does not join
}

// Another rank is lost after the survivors have found each other and before the new world is complete.
TEST_P(Survivors, JoinAgainUntilThereIsANewWorld) {
  expect_others_join(4, {3});
  lose(1);
  expect_joined_by({0, 2});
}

TEST_P(Survivors, JoinOnce) {
  prepare(1);
  lose(0);
  start(0).expect_error(ErrorCode::invalid_argument, "a world is rebuilt once");
}

TEST_P(Survivors, AreNotDelayedByUnauthenticatedConnections) {
  prepare(3);
  lose(0);
  std::vector<RawConnection> connections;
  for (const std::int32_t rank : {1, 2})
    for (const std::string& text : {std::string("GET /"), std::string(500, 'x')})
      connections.emplace_back(contacts_[RankId(rank).index()].own.endpoint).send(text);
  expect_joined_by({1, 2});
}

TEST_P(Survivors, RefuseRanksOfAnotherWorld) {
  prepare(3);
  lose(2);
  contacts_[1].token = "secret of another world";
  RendezvousRank coordinator = start(0);
  start(1).expect_error(ErrorCode::invalid_argument, "does not accept the token");
  lose(1);
  coordinator.expect_error(ErrorCode::minority, "only 1 of 3 ranks");
}

INSTANTIATE_TEST_SUITE_P(OverEverySocket, Survivors, ::testing::Values(SocketKind::tcp, SocketKind::local),
                         [](const auto& of) { return of.param == SocketKind::tcp ? "Tcp" : "Local"; });

}  // namespace
}  // namespace shunt::test
