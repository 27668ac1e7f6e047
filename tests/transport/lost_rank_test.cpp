// A rank of a job of processes dies, stops, leaves or errs: every other rank is told who, in seconds, and nothing is
// left.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "shunt/engine.hpp"
#include "support/round_trip.hpp"
#include "support/survivors.hpp"
#include "support/traces.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr std::int32_t kNumRanks = 4;
constexpr RankId kCulprit(2);

/// The culprit does what it does after one good round, while all others wait for it.
class LostRank : public LeavesNoTrace {
 protected:
  SpawnEnd run(const std::function<void(World&)>& misdeed, const Environment& environment = hasty()) {
    return survivors_.spawn(
        kNumRanks,
        [&](World& world) {
          round_trip(world);
          if (world.rank() == kCulprit) return misdeed(world);
          world.barrier();
        },
        environment);
  }

  /// The others handle what they are told, and return.
  SpawnEnd run_and_handle(const std::function<void(World&)>& misdeed, const Environment& environment = hasty()) {
    return survivors_.spawn(
        kNumRanks,
        [&](World& world) {
          if (world.rank() == kCulprit) return misdeed(world);
          EXPECT_THROW(world.barrier(), Error);
        },
        environment);
  }

  Survivors survivors_;
};

TEST_F(LostRank, ThatThrowsIsNamedWithItsText) {
  const auto end = run([](World&) { throw std::runtime_error("out of luck"); });
  EXPECT_EQ(end.code, ErrorCode::peer_failed);
  EXPECT_THAT(end.text, HasSubstr("out of luck"));
  survivors_.expect_all_were_told(kCulprit, ErrorCode::peer_failed, {"out of luck"});
}

TEST_F(LostRank, ThatThrowsANumberIsNamed) {
  const auto end = run([](World&) { throw 42; });
  EXPECT_EQ(end.code, ErrorCode::peer_failed);
  EXPECT_THAT(end.text, HasSubstr("rank 2 failed: it threw something that is not a std::exception"));
}

TEST_F(LostRank, ThatExitsIsNamedWhateverItsStatus) {
  for (const int status : {0, 3}) {
    const auto end = run([&](World&) { _exit(status); });
    EXPECT_EQ(end.code, ErrorCode::peer_lost);
    EXPECT_THAT(end.text, HasSubstr(fmt::format("rank 2 exited with status {}", status)));
    survivors_.expect_all_were_told(kCulprit, ErrorCode::peer_lost, {"ended"});
  }
}

TEST_F(LostRank, ThatExitsAloneIsNoSuccess) {
  const auto end = survivors_.spawn(
      1, [](World&) { _exit(0); }, hasty());
  EXPECT_THAT(end.text, HasSubstr("rank 0 exited with status 0"));
}

TEST_F(LostRank, ThatIsKilledWhileOthersWaitIsNamed) {
  const auto end = run([](World&) { raise(SIGKILL); });
  EXPECT_EQ(end.code, ErrorCode::peer_lost);
  EXPECT_THAT(end.text, HasSubstr("rank 2 was killed by signal 9"));
  survivors_.expect_all_were_told(kCulprit, ErrorCode::peer_lost, {"ended"});
}

TEST_F(LostRank, ThatIsKilledWhileItCopiesIsNamed) {
  const auto end = survivors_.spawn(
      kNumRanks,
      [](World& world) {
        Engine engine(world, {.hidden = 4096, .dtype = f32});
        round_trip(engine, world, 256, 1);
        std::jthread killer;
        if (world.rank() == kCulprit)
          killer = std::jthread([] {
            std::this_thread::sleep_for(30ms);
            raise(SIGKILL);
          });
        for (std::uint32_t seed = 0;; ++seed) round_trip(engine, world, 256, seed);
      },
      hasty());
  EXPECT_THAT(end.text, HasSubstr("rank 2 was killed by signal 9"));
  survivors_.expect_all_were_told(kCulprit, ErrorCode::peer_lost, {"ended"});
}

TEST_F(LostRank, ThatHostedTheMeetingIsNamedLikeAnyOther) {
  const auto end = survivors_.spawn(
      kNumRanks,
      [](World& world) {
        world.barrier();
        if (world.rank() == RankId(0)) raise(SIGKILL);
        world.barrier();
      },
      hasty());
  EXPECT_THAT(end.text, HasSubstr("rank 0 was killed by signal 9"));
  survivors_.expect_all_were_told(RankId(0), ErrorCode::peer_lost, {"ended"});
}

TEST_F(LostRank, ThatIsKilledIsNoticedThoughAProcessOfItsOwnHoldsItsDescriptors) {
  SharedAcrossForks<pid_t> orphan;
  const auto end = run([&](World&) {
    if (const pid_t child = fork(); child == 0) {
      std::this_thread::sleep_for(60s);
      _exit(0);
    } else {
      *orphan = child;
    }
    raise(SIGKILL);
  });
  if (*orphan > 0) kill(*orphan, SIGKILL);
  EXPECT_THAT(end.text, HasSubstr("rank 2 was killed by signal 9"));
  survivors_.expect_all_were_told(kCulprit, ErrorCode::peer_lost, {"has not answered"});
}

TEST_F(LostRank, ThatIsStoppedForLongerThanTheLivenessLimitIsNamed) {
  const auto end = run([](World&) { raise(SIGSTOP); });
  EXPECT_EQ(end.code, ErrorCode::peer_lost);
  EXPECT_THAT(end.text, HasSubstr("rank 2 has not answered"));
  survivors_.expect_all_were_told(kCulprit, ErrorCode::peer_lost, {"has not answered"});
}

TEST_F(LostRank, ThatStaysStoppedIsEndedAndNamedThoughTheOthersHandleTheError) {
  const auto end = run_and_handle([](World&) { raise(SIGSTOP); });
  EXPECT_EQ(end.code, ErrorCode::peer_lost);
  EXPECT_THAT(end.text, HasSubstr("rank 2 has not answered"));
}

TEST_F(LostRank, ThatIsSlowMayFinishThoughTheOthersHandledTheError) {
  SharedAcrossForks<bool> finished;
  Environment environment = hasty();
  environment.deadline = 100ms;
  const auto end = run_and_handle(
      [&](World&) {
        std::this_thread::sleep_for(3s);
        *finished = true;
      },
      environment);
  EXPECT_FALSE(end.threw) << end.text;
  EXPECT_TRUE(*finished);
}

TEST_F(LostRank, ThatLeavesEarlyIsNamed) {
  const auto end = run([](World&) {});
  EXPECT_EQ(end.code, ErrorCode::peer_lost);
  EXPECT_THAT(end.text, HasSubstr("rank 2 has left"));
  survivors_.expect_all_were_told(kCulprit, ErrorCode::peer_lost, {"has left", "barrier #"});
}

TEST_F(LostRank, ThatIsTooSlowIsNamedWhenTheDeadlineExpires) {
  Environment environment = hasty();
  environment.deadline = 400ms;
  const auto end = run([](World&) { std::this_thread::sleep_for(1200ms); }, environment);
  EXPECT_EQ(end.code, ErrorCode::deadline);
  survivors_.expect_all_were_told(kCulprit, ErrorCode::deadline, {"400 ms", "waits for rank 2 to call it"});
}

TEST_F(LostRank, ThatOnlyComputesForLongIsNotLost) {
  Environment environment = hasty();
  const auto end = run(
      [](World& world) {
        std::this_thread::sleep_for(1200ms);  // four times the liveness limit
        world.barrier();
      },
      environment);
  EXPECT_FALSE(end.threw) << end.text;
}

TEST_F(LostRank, ThatCallsAnotherOperationIsNamedTogetherWithBothOperations) {
  const auto end = survivors_.spawn(
      2,
      [](World& world) {
        Engine engine(world, {.hidden = 8, .dtype = f32});
        const std::vector<std::int32_t> experts = {0, 1};
        const Plan plan = engine.plan({experts, {}, 1}, ExpertMap::contiguous(2, 2));
        const Tensor rows = world.allocate(f32, 2, 8);
        if (world.rank() == RankId(0))
          (void)engine.dispatch(plan, rows).wait();
        else
          (void)engine.combine(plan, rows).wait();
      },
      hasty());
  EXPECT_EQ(end.code, ErrorCode::mismatch);
  for (const char* word : {"rank 0", "rank 1", "dispatch", "combine"}) EXPECT_THAT(end.text, HasSubstr(word));
}

}  // namespace
}  // namespace shunt::test
