// A rank of a job of processes dies, stops, leaves or errs: every other rank receives an Error that names it, within
// seconds, and nothing is left behind.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "shunt/engine.hpp"
#include "support/round_trip.hpp"
#include "support/spawn_recorder.hpp"
#include "support/traces.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr std::int32_t kNumRanks = 4;
constexpr RankId kCulprit(2);

using Body = std::function<void(World&)>;

class LostRank : public LeavesNoTrace {
 protected:
  /// The culprit misbehaves after one good round, while all others wait for it.
  SpawnEnd run(const Body& misdeed, const Environment& environment = hasty(), RankId culprit = kCulprit) {
    const auto body = [&](World& world) {
      round_trip(world);
      if (world.rank() == culprit) return misdeed(world);
      world.barrier();
    };
    return recorder_.spawn(kNumRanks, body, environment);
  }

  /// All ranks name the culprit: the spawn's Error has these words, and that of every other rank has `others`.
  void expect_named(const Body& misdeed, ErrorCode code, const std::string& words,
                    const std::vector<std::string>& others, const Environment& environment = hasty(),
                    RankId culprit = kCulprit) {
    const SpawnEnd end = run(misdeed, environment, culprit);
    EXPECT_EQ(to_string(end.code), to_string(code));
    EXPECT_THAT(end.text, HasSubstr(words));
    recorder_.expect_all_received(culprit, code, others);
  }

  /// The others catch the Error, and return.
  SpawnEnd run_and_catch(const Body& misdeed, const Environment& environment = hasty()) {
    const auto body = [&](World& world) {
      if (world.rank() == kCulprit) return misdeed(world);
      EXPECT_THROW(world.barrier(), Error);
    };
    return recorder_.spawn(kNumRanks, body, environment);
  }

  SpawnRecorder recorder_;
};

TEST_F(LostRank, ThatOnlyComputesForLongIsNotLost) {
  const auto end = run([](World& world) {
    std::this_thread::sleep_for(1200ms);  // four times the liveness limit
    world.barrier();
  });
  EXPECT_FALSE(end.threw) << end.text;
}

TEST_F(LostRank, ThatThrowsIsNamedWithItsText) {
  expect_named([](World&) { throw std::runtime_error("out of luck"); }, ErrorCode::peer_failed,
               "rank 2 failed: out of luck", {"out of luck"});
  expect_named([](World&) { throw 42; }, ErrorCode::peer_failed,
               "rank 2 failed: it threw something that is not a std::exception", {});
}

TEST_F(LostRank, ThatExitsIsNamedWhateverItsStatus) {
  for (const int status : {0, 3})
    expect_named([&](World&) { _exit(status); }, ErrorCode::peer_lost,
                 fmt::format("rank 2 exited with status {}", status), {"ended"});
}

TEST_F(LostRank, ThatIsKilledIsNamedThoughItCoordinated) {
  expect_named([](World&) { raise(SIGKILL); }, ErrorCode::peer_lost, "rank 0 was killed by signal 9", {"ended"},
               hasty(), RankId(0));
}

TEST_F(LostRank, ThatIsStoppedForLongerThanTheLivenessLimitIsNamed) {
  expect_named([](World&) { raise(SIGSTOP); }, ErrorCode::peer_lost, "rank 2 has not answered", {"has not answered"});
}

TEST_F(LostRank, ThatLeavesEarlyIsNamed) {
  expect_named([](World&) {}, ErrorCode::peer_lost, "rank 2 has left", {"has left", "barrier #"});
}

TEST_F(LostRank, ThatIsTooSlowIsNamedWhenTheDeadlineExpires) {
  Environment environment = hasty();
  environment.deadline = 400ms;
  expect_named([](World&) { std::this_thread::sleep_for(1200ms); }, ErrorCode::deadline, "400 ms",
               {"400 ms", "waits for rank 2 to call it"}, environment);
}

TEST_F(LostRank, ThatExitsAloneIsNoSuccess) {
  const auto end = recorder_.spawn(
      1, [](World&) { _exit(0); }, hasty());
  EXPECT_THAT(end.text, HasSubstr("rank 0 exited with status 0"));
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
  recorder_.expect_all_received(kCulprit, ErrorCode::peer_lost, {"has not answered"});
}

TEST_F(LostRank, ThatStaysStoppedIsEndedAndNamedThoughTheOthersCatchTheError) {
  const auto end = run_and_catch([](World&) { raise(SIGSTOP); });
  EXPECT_EQ(end.code, ErrorCode::peer_lost);
  EXPECT_THAT(end.text, HasSubstr("rank 2 has not answered"));
}

TEST_F(LostRank, ThatIsSlowMayFinishThoughTheOthersCaughtTheError) {
  SharedAcrossForks<bool> finished;
  Environment environment = hasty();
  environment.deadline = 100ms;
  const auto end = run_and_catch(
      [&](World&) {
        std::this_thread::sleep_for(3s);
        *finished = true;
      },
      environment);
  EXPECT_FALSE(end.threw) << end.text;
  EXPECT_TRUE(*finished);
}

}  // namespace
}  // namespace shunt::test
