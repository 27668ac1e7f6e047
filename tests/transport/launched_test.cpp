// Ranks that another launcher started join, or throw what went wrong; when some are lost, the others make a new world
// of themselves and go on. rendezvous_test has more of the errors.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <vector>

#include "shunt/engine.hpp"
#include "support/child_process.hpp"
#include "support/eventually.hpp"
#include "support/require.hpp"
#include "support/require_error.hpp"
#include "support/round_trip.hpp"
#include "support/traces.hpp"

namespace shunt::test {
namespace {

/// A process that makes a world and runs the body on it.
ChildProcess start_rank(std::int32_t rank, std::int32_t size, const std::string& job,
                        const std::function<void(World&)>& body, int join_ms = 15'000) {
  return ChildProcess([&] {
    setenv("SHUNT_RANK", std::to_string(rank).c_str(), 1);
    setenv("SHUNT_WORLD_SIZE", std::to_string(size).c_str(), 1);
    setenv("SHUNT_JOB", (std::to_string(getppid()) + job).c_str(), 1);
    setenv("SHUNT_LIVENESS_MS", "1000", 1);
    setenv("SHUNT_JOIN_MS", std::to_string(join_ms).c_str(), 1);
    World world = World::from_environment();
    body(world);
  });
}

class Join : public LeavesNoTrace {
 protected:
  /// A rank of this test's job, started as a launcher would do it.
  ChildProcess start(
      std::int32_t rank, std::int32_t size, int join_ms = 10'000,
      const std::function<void(World&)>& body = [](World& world) { round_trip(world); }) const {
    // A name that is longer than a socket's may be.
    return start_rank(rank, size, fmt::format("{}-{}", std::string(150, 'x'), job_), body, join_ms);
  }

  std::int32_t job_ = 0;
};

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

TEST_F(Join, NamesTheMissingRanksAfterTheLimitToAllThatCame) {
  ChildProcess coordinator = start(0, 4, 500);
  ChildProcess participant = start(2, 4, 500);
  for (ChildProcess* rank : {&coordinator, &participant}) expect_error(*rank, ErrorCode::deadline, "ranks: 1, 3");
}

TEST_F(Join, ReportsARankWhoseWorldIsDestroyedByAnException) {
  const auto body = [](World& world) {
    if (world.rank() == RankId(1)) throw std::runtime_error("slipped");
    world.barrier();
  };
  ChildProcess witness = start(0, 2, 10'000, body);
  ChildProcess thrower = start(1, 2, 10'000, body);
  expect_error(witness, ErrorCode::peer_failed, "rank 1 left the world because of an exception");
  expect_error(thrower, ErrorCode::internal, "slipped");
}

class Rebuild : public LeavesNoTrace {
 protected:
  void TearDown() override {
    ranks_.clear();
    LeavesNoTrace::TearDown();
  }

  /// Starts ranks as a launcher does that does not end the others when one dies. They shuffle until the test has killed
  /// some; survivors then call `afterwards`.
  void start(std::int32_t size, const std::function<void(World&)>& afterwards) {
    for (std::int32_t rank = 0; rank < size; ++rank) {
      ranks_.push_back(start_rank(rank, size, "rebuild", [&](World& world) {
        round_trip(world);
        ++*num_ready_;
        try {
          for (;;) round_trip(world);
        } catch (const Error& error) {
          require(error.code() == ErrorCode::peer_lost, error.what());
          afterwards(world);
        }
      }));
    }
    EXPECT_TRUE(eventually([&] { return *num_ready_ == size; }));
  }

  [[nodiscard]] ChildProcess& rank(std::int32_t index) { return ranks_[RankId(index).index()]; }

  SharedAcrossForks<std::atomic<int>> num_ready_;
  std::vector<ChildProcess> ranks_;
};

TEST_F(Rebuild, MakesAWorldOfTheSurvivorsWhicheverRankDied) {
  for (const std::int32_t lost : {0, 2, 3}) {
    ranks_.clear();
    *num_ready_ = 0;
    start(4, [lost](World& old) {
      const RankId former = old.rank();
      auto [world, survivors] = old.rebuild();
      require(world.size() == 3, "three are left");
      require(survivors[world.rank().index()] == former, "the order stays");
      for (const RankId survivor : survivors) require(survivor != RankId(lost), "the lost one is gone");
      for (std::uint32_t seed = 0; seed < 20; ++seed) round_trip(world, seed);
    });
    ranks_[RankId(lost).index()].kill(SIGKILL);
    for (std::int32_t r = 0; r < 4; ++r)
      if (r != lost) expect_returned(rank(r));
  }
}

TEST_F(Rebuild, CanBeRepeatedUntilOneIsLeft) {
  start(4, [](World& old) {
    World world = std::move(old);
    for (;;) {
      world = world.rebuild().world;
      if (world.size() == 1) return round_trip(world);
      if (world.rank() == RankId(1)) kill(getpid(), SIGKILL);
      try {
        for (;;) round_trip(world);
      } catch (const Error&) {
      }
    }
  });
  ranks_[3].kill(SIGKILL);
  expect_returned(rank(0));
}

TEST_F(Rebuild, LeavesOutARankThatWasStopped) {
  SharedAcrossForks<std::atomic<int>> num_done;
  SharedAcrossForks<std::atomic<bool>> was_woken;
  start(4, [&](World& old) {
    auto [world, survivors] = old.rebuild();
    require(world.size() == 3, "three are left");
    ++*num_done;
    for (std::byte is_over{0}; is_over == std::byte{0};) {
      round_trip(world);
      const bool mine = *was_woken;
      is_over = world.all_gather(std::as_bytes(std::span(&mine, 1))).front().front();
    }
  });
  ranks_[2].kill(SIGSTOP);
  EXPECT_TRUE(eventually([&] { return *num_done == 3; }));
  ranks_[2].kill(SIGCONT);
  expect_error(rank(2), ErrorCode::minority, "finds none of the 3 other ranks");
  *was_woken = true;
  for (const std::int32_t r : {0, 1, 3}) expect_returned(rank(r));
}

TEST_F(Rebuild, KeepsTheNodesOfTheSurvivors) {
  setenv("SHUNT_VIRTUAL_NODES", "2", 1);
  start(5, [](World& old) {
    World world = std::move(old.rebuild().world);
    require(world.topology().num_nodes() == 2, "two nodes are left");
    require(world.topology().node(RankId(1)) == NodeId(0) && world.topology().node(RankId(2)) == NodeId(1),
            "as before");
    round_trip(world);
  });
  unsetenv("SHUNT_VIRTUAL_NODES");
  ranks_[1].kill(SIGKILL);
  for (const std::int32_t r : {0, 2, 3, 4}) expect_returned(rank(r));
}

TEST_F(Rebuild, NeedsAFault) {
  ranks_.push_back(start_rank(0, 1, "whole", [](World& world) { (void)world.rebuild(); }));
  expect_error(rank(0), ErrorCode::invalid_argument, "no rank is lost");
}

TEST_F(Rebuild, NeedsProcessesAndAWholeWorld) {
  const auto expect_refused = [](World& world, ErrorCode code, const std::string& words) {
    require_error([&] { (void)world.rebuild(); }, code, words);
  };
  World::spawn(2, [&](World& world) {
    expect_refused(world, ErrorCode::unsupported, "whose ranks are processes");
    if (world.rank() == RankId(0)) {
      World part = world.split(1);
      expect_refused(part, ErrorCode::invalid_argument, "split off");
    } else {
      (void)world.split(2);
    }
  });
}

}  // namespace
}  // namespace shunt::test
