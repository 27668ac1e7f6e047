// Ranks that another launcher started find each other, or learn why not.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "support/child_process.hpp"
#include "support/round_trip.hpp"
#include "support/traces.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class Join : public LeavesNoTrace {
 protected:
  /// A rank of this test's job, started as a launcher would do it.
  ChildProcess start(
      std::int32_t rank, std::int32_t size, int join_ms = 10'000,
      const std::function<void(World&)>& body = [](World& world) { round_trip(world); }) const {
    return ChildProcess([&] {
      setenv("SHUNT_RANK", std::to_string(rank).c_str(), 1);
      setenv("SHUNT_WORLD_SIZE", std::to_string(size).c_str(), 1);
      // Longer than a socket's name may be.
      setenv("SHUNT_JOB", fmt::format("{}-{}-{}", std::string(150, 'x'), getppid(), job_).c_str(), 1);
      setenv("SHUNT_JOIN_MS", std::to_string(join_ms).c_str(), 1);
      World world = World::from_environment();
      body(world);
    });
  }

  /// Returns once rank 0, which is being started, listens.
  [[nodiscard]] static std::string await_listener(const ChildProcess& coordinator) {
    const auto guard = std::chrono::steady_clock::now() + 20s;
    std::string name;
    while (name.empty() && std::chrono::steady_clock::now() < guard) {
      std::this_thread::sleep_for(1ms);
      name = local_listener_of(coordinator.pid());
    }
    return name;
  }

  static void expect_returned(ChildProcess& child) {
    const auto end = child.wait();
    ASSERT_TRUE(end) << "hangs";
    EXPECT_TRUE(end->returned) << end->error;
  }
  static void expect_error(ChildProcess& child, ErrorCode code, const std::string& words) {
    const auto end = child.wait();
    ASSERT_TRUE(end) << "hangs";
    EXPECT_EQ(to_string(end->code), to_string(code)) << end->error;
    EXPECT_THAT(end->error, HasSubstr(words));
  }

  std::int32_t job_ = 0;
};

TEST_F(Join, BringsRanksTogetherInWhateverOrderTheyCome) {
  for (const auto& order : {std::vector{0, 1, 2, 3}, std::vector{3, 1, 0, 2}}) {
    std::vector<ChildProcess> ranks;
    for (const int rank : order) {
      ranks.push_back(start(rank, 4));
      std::this_thread::sleep_for(20ms);
    }
    for (auto& rank : ranks) expect_returned(rank);
  }
}

TEST_F(Join, NeedsNoMoreDescriptorsInFlightThanAnOrdinaryUserMayHave) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  constexpr std::int32_t kNumRanks = 24;
  ChildProcess user([] {
    const rlimit fewer_than_the_ranks_exchange{160, 160};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &fewer_than_the_ranks_exchange), 0);
    ASSERT_EQ(setresuid(65534, 65534, 65534), 0);
    World::spawn(kNumRanks, [](World& world) { world.barrier(); }, {.kind = WorldKind::shm});
  });
  expect_returned(user);
}

TEST_F(Join, LetsAJobMakeOneWorldAfterAnother) {
  const auto make_another = [](World& world) {
    World second = World::from_environment();
    round_trip(second);
    round_trip(world);
  };
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.push_back(start(rank, 3, 10'000, make_another));
  for (auto& rank : ranks) expect_returned(rank);
}

TEST_F(Join, KeepsJobsApartWhoseLongNamesDifferAtTheEnd) {
  std::vector<ChildProcess> ranks;
  for (const int rank : {0, 1})
    for (job_ = 0; job_ < 3; ++job_) ranks.push_back(start(rank, 2));
  for (auto& rank : ranks) expect_returned(rank);
}

TEST_F(Join, NamesTheMissingRanksToAllThatCame) {
  ChildProcess coordinator = start(0, 4, 500);
  ChildProcess participant = start(2, 4, 500);
  expect_error(coordinator, ErrorCode::deadline, "ranks: 1, 3");
  expect_error(participant, ErrorCode::deadline, "ranks: 1, 3");
}

TEST_F(Join, NamesAFewOfManyMissingRanks) {
  ChildProcess coordinator = start(0, 4000, 100);
  expect_error(coordinator, ErrorCode::deadline,
               "ranks: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 3983 more");
}

TEST_F(Join, NamesAMissingRankZero) {
  ChildProcess participant = start(1, 2, 300);
  expect_error(participant, ErrorCode::deadline, "rank 0");
}

TEST_F(Join, NamesARankThatBelievesInAnotherSizeToAllThatCame) {
  ChildProcess coordinator = start(0, 3);
  ChildProcess sound = start(1, 3);
  std::this_thread::sleep_for(100ms);
  ChildProcess mistaken = start(2, 4);
  for (ChildProcess* rank : {&coordinator, &sound, &mistaken})
    expect_error(*rank, ErrorCode::mismatch, "rank 2 believes in 4 ranks, rank 0 in 3");
}

TEST_F(Join, NamesARankThatIsThereTwiceToAllThatCame) {
  ChildProcess coordinator = start(0, 3);
  ChildProcess first = start(1, 3);
  std::this_thread::sleep_for(100ms);
  ChildProcess second = start(1, 3);
  for (ChildProcess* rank : {&coordinator, &first, &second})
    expect_error(*rank, ErrorCode::mismatch, "a second process says that it is rank 1");
}

TEST_F(Join, TurnsASecondRankZeroAwayAndGoesOn) {
  ChildProcess coordinator = start(0, 2);
  ASSERT_FALSE(await_listener(coordinator).empty());
  ChildProcess second = start(0, 2);
  expect_error(second, ErrorCode::system, "another job's rank 0");
  ChildProcess participant = start(1, 2);
  expect_returned(coordinator);
  expect_returned(participant);
}

TEST_F(Join, NamesARankThatDiesBeforeAllHaveCome) {
  ChildProcess coordinator = start(0, 3);
  ChildProcess participant = start(1, 3);
  std::this_thread::sleep_for(300ms);
  participant.kill(SIGKILL);
  expect_error(coordinator, ErrorCode::peer_lost, "rank 1 ended");
}

TEST_F(Join, TellsParticipantsThatRankZeroDied) {
  ChildProcess coordinator = start(0, 3);
  ChildProcess participant = start(1, 3);
  std::this_thread::sleep_for(300ms);
  coordinator.kill(SIGKILL);
  expect_error(participant, ErrorCode::peer_lost, "rank 0 ended");
}

TEST_F(Join, TellsTheOthersWhenAnExceptionDestroysARanksWorld) {
  const auto body = [](World& world) {
    if (world.rank() == RankId(1)) throw std::runtime_error("slipped");
    world.barrier();
  };
  ChildProcess patient = start(0, 2, 10'000, body);
  ChildProcess thrower = start(1, 2, 10'000, body);
  expect_error(patient, ErrorCode::peer_failed, "rank 1 left the world because of an exception");
  expect_error(thrower, ErrorCode::internal, "slipped");
}

TEST_F(Join, TellsTheOthersWhenARankIsKilled) {
  SharedAcrossForks<std::atomic<int>> num_joined;
  const auto body = [&](World& world) {
    ++*num_joined;
    if (world.rank() == RankId(1)) std::this_thread::sleep_for(60s);
    world.barrier();
  };
  ChildProcess patient = start(0, 2, 10'000, body);
  ChildProcess victim = start(1, 2, 10'000, body);
  const auto guard = std::chrono::steady_clock::now() + 20s;
  while (*num_joined < 2 && std::chrono::steady_clock::now() < guard) std::this_thread::sleep_for(1ms);
  victim.kill(SIGKILL);
  expect_error(patient, ErrorCode::peer_lost, "rank 1 ended");
}

}  // namespace
}  // namespace shunt::test
