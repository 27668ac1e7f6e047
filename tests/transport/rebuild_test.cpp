// A job of processes loses ranks; the others make a new world of themselves and go on.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "shunt/engine.hpp"
#include "support/child_process.hpp"
#include "support/round_trip.hpp"
#include "support/traces.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class Rebuild : public LeavesNoTrace {
 protected:
  void TearDown() override {
    ranks_.clear();
    LeavesNoTrace::TearDown();
  }

  /// Starts ranks as a launcher does that lets the others live when one dies. Each shuffles, tells the test, then waits
  /// in vain for the lost ones; `afterwards` is what a survivor does with the Error.
  void start(std::int32_t size, const std::function<void(World&)>& afterwards) {
    for (std::int32_t rank = 0; rank < size; ++rank) {
      ranks_.emplace_back([this, rank, size, &afterwards] {
        setenv("SHUNT_RANK", std::to_string(rank).c_str(), 1);
        setenv("SHUNT_WORLD_SIZE", std::to_string(size).c_str(), 1);
        setenv("SHUNT_JOB", fmt::format("rebuild-{}", getppid()).c_str(), 1);
        setenv("SHUNT_LIVENESS_MS", "1000", 1);
        setenv("SHUNT_JOIN_MS", "15000", 1);
        World world = World::from_environment();
        round_trip(world);
        ++*num_ready_;
        try {
          for (;;) round_trip(world);
        } catch (const Error&) {
          afterwards(world);
        }
      });
    }
    const auto guard = std::chrono::steady_clock::now() + 20s;
    while (*num_ready_ < size && std::chrono::steady_clock::now() < guard) std::this_thread::sleep_for(1ms);
  }

  void expect_returned(std::int32_t rank) {
    const auto end = ranks_[RankId(rank).index()].wait(40s);
    ASSERT_TRUE(end) << "rank " << rank << " hangs";
    EXPECT_TRUE(end->returned) << "rank " << rank << ": " << end->error;
  }
  void expect_error(std::int32_t rank, ErrorCode code, const std::string& words) {
    const auto end = ranks_[RankId(rank).index()].wait(40s);
    ASSERT_TRUE(end) << "rank " << rank << " hangs";
    EXPECT_EQ(to_string(end->code), to_string(code)) << end->error;
    EXPECT_THAT(end->error, HasSubstr(words));
  }

  SharedAcrossForks<std::atomic<int>> num_ready_;
  std::vector<ChildProcess> ranks_;
};

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

TEST_F(Rebuild, MakesAWorldOfTheSurvivorsWhoeverDied) {
  for (const std::int32_t lost : {0, 2, 3}) {
    ranks_.clear();
    *num_ready_ = 0;
    start(4, [lost](World& old) {
      const RankId former = old.rank();
      auto [world, survivors] = old.rebuild();
      expect(world.size() == 3, "three are left");
      expect(survivors[world.rank().index()] == former, "the order stays");
      for (const RankId survivor : survivors) expect(survivor != RankId(lost), "the lost one is gone");
      for (std::uint32_t seed = 0; seed < 20; ++seed) round_trip(world, {}, seed);
    });
    ranks_[RankId(lost).index()].kill(SIGKILL);
    for (std::int32_t rank = 0; rank < 4; ++rank)
      if (rank != lost) expect_returned(rank);
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
  expect_returned(0);
}

TEST_F(Rebuild, IsRefusedToAMinority) {
  start(5, [](World& old) { (void)old.rebuild(); });
  for (const std::size_t rank : {0, 2, 3}) ranks_[rank].kill(SIGKILL);
  for (const std::int32_t rank : {1, 4}) expect_error(rank, ErrorCode::minority, "only 2 of 5 ranks");
}

TEST_F(Rebuild, LeavesARankOutThatWasStoppedAndCanThenHarmNobody) {
  SharedAcrossForks<std::atomic<int>> num_done;
  SharedAcrossForks<std::atomic<bool>> was_woken;
  start(4, [&](World& old) {
    auto [world, survivors] = old.rebuild();
    expect(world.size() == 3, "three are left");
    ++*num_done;
    for (std::byte is_over{0}; is_over == std::byte{0};) {
      round_trip(world);
      const bool mine = *was_woken;
      is_over = world.all_gather(std::as_bytes(std::span(&mine, 1))).front().front();
    }
  });
  ranks_[2].kill(SIGSTOP);
  const auto guard = std::chrono::steady_clock::now() + 20s;
  while (*num_done < 3 && std::chrono::steady_clock::now() < guard) std::this_thread::sleep_for(1ms);
  ranks_[2].kill(SIGCONT);
  expect_error(2, ErrorCode::minority, "finds none of the 3 other ranks");
  *was_woken = true;
  for (const std::int32_t rank : {0, 1, 3}) expect_returned(rank);
}

TEST_F(Rebuild, KeepsTheNodesOfTheSurvivors) {
  setenv("SHUNT_VIRTUAL_NODES", "2", 1);
  start(5, [](World& old) {
    World world = std::move(old.rebuild().world);
    expect(world.topology().num_nodes() == 2, "two nodes are left");
    expect(world.topology().node(RankId(1)) == NodeId(0) && world.topology().node(RankId(2)) == NodeId(1), "as before");
    round_trip(world);
  });
  unsetenv("SHUNT_VIRTUAL_NODES");
  ranks_[1].kill(SIGKILL);
  for (const std::int32_t rank : {0, 2, 3, 4}) expect_returned(rank);
}

TEST_F(Rebuild, NeedsAFault) {
  ranks_.emplace_back([] {
    setenv("SHUNT_RANK", "0", 1);
    setenv("SHUNT_WORLD_SIZE", "1", 1);
    setenv("SHUNT_JOB", fmt::format("whole-{}", getppid()).c_str(), 1);
    World world = World::from_environment();
    (void)world.rebuild();
  });
  expect_error(0, ErrorCode::invalid_argument, "nobody is lost");
}

TEST_F(Rebuild, NeedsProcessesAndAWholeWorld) {
  const auto expect_refused = [](World& world, ErrorCode code, const std::string& words) {
    try {
      (void)world.rebuild();
      FAIL() << "rebuilt, instead of: " << words;
    } catch (const Error& error) {
      EXPECT_EQ(to_string(error.code()), to_string(code));
      EXPECT_THAT(error.what(), HasSubstr(words));
    }
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
