// A rank of a job of processes dies, stops, leaves or errs: every other rank receives an Error that names it, within
// seconds, and nothing is left behind. Likewise when the launcher gets a signal, or all of the job.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <random>
#include <thread>

#include "shunt/engine.hpp"
#include "support/child_process.hpp"
#include "support/eventually.hpp"
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
  SpawnEnd run(const Body& misdeed, const Environment& environment = hasty(), RankId culprit = kCulprit,
               const Body& wait = &World::barrier) {
    const auto body = [&](World& world) {
      round_trip(world);
      world.rank() == culprit ? misdeed(world) : wait(world);
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
    return run(misdeed, environment, kCulprit, [](World& world) { EXPECT_THROW(world.barrier(), Error); });
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

/// Kills the process that `launcher` forks as its n-th from now, some time after its birth.
void kill_child(pid_t launcher, std::size_t n, std::chrono::microseconds delay) {
  const auto guard = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::vector<pid_t> children;
  // This process is the launcher's first child.
  while (children.size() < n + 2 && std::chrono::steady_clock::now() < guard) {
    children.clear();
    std::ifstream list(fmt::format("/proc/{0}/task/{0}/children", launcher));
    for (pid_t pid = 0; list >> pid;) children.push_back(pid);
  }
  std::this_thread::sleep_for(delay);
  if (children.size() >= n + 2) kill(children[n + 1], SIGKILL);
}

/// Limits so long that waiting for them counts as a hang: a death is noticed without them.
Environment with_long_limits() {
  Environment environment;
  environment.liveness = std::chrono::seconds(30);
  environment.join = std::chrono::seconds(30);
  return environment;
}

class Soak : public LostRank {};

TEST_F(Soak, TwoHundredRanksKilledAtRandomMomentsLeaveNoHangAndNothingBehind) {
  std::mt19937_64 random(20240607);
  for (int run = 0; run < 200 && !HasFailure(); ++run) {
    const std::size_t victim = random() % kNumRanks;
    const std::chrono::microseconds delay(random() % 30'000);
    SCOPED_TRACE(fmt::format("run {}: rank {} is killed after {} us", run, victim, delay.count()));
    const auto before = find_traces();
    std::optional<ChildProcess> killer(std::in_place,
                                       [&, launcher = getpid()] { kill_child(launcher, victim, delay); });
    const auto end = recorder_.spawn(
        kNumRanks,
        [](World& world) {
          Engine engine(world, {.hidden = 256, .dtype = f32});
          for (std::uint32_t seed = 0;; ++seed) round_trip(engine, world, 32, seed);
        },
        with_long_limits());
    ASSERT_TRUE(killer->wait());
    killer.reset();
    EXPECT_TRUE(end.threw);
    EXPECT_EQ(to_string(end.code), to_string(ErrorCode::peer_lost)) << end.text;
    EXPECT_THAT(end.text, ::testing::HasSubstr(fmt::format("rank {}", victim)));
    expect_no_new_traces(before);
  }
}

/// A launcher in a process of its own. Its orphans become this process's children, so that all are found.
class Launcher : public LeavesNoTrace {
 protected:
  void SetUp() override {
    LeavesNoTrace::SetUp();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  void TearDown() override {
    EXPECT_TRUE(eventually([] { return waitpid(-1, nullptr, WNOHANG) < 0; }));
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    LeavesNoTrace::TearDown();
  }

  /// Returns once all ranks have joined; they then work until `finished` is set.
  ChildProcess start(const Environment& environment = hasty()) {
    ChildProcess launcher([&] {
      World::spawn(kNumRanks,
                   [&](World& world) {
                     world.barrier();
                     job_->ranks[world.rank().index()] = getpid();
                     while (world.all_gather(std::vector<std::byte>(job_->finished ? 1 : 0))[0].empty())
                       round_trip(world);
                   },
                   {.kind = WorldKind::shm, .environment = environment});
    });
    for (const auto& rank : job_->ranks) EXPECT_TRUE(eventually([&] { return rank != 0; }));
    return launcher;
  }

  void signal_ranks(int signal) const {
    for (const auto& rank : job_->ranks)
      if (rank > 0) kill(rank, signal);
  }

  struct Job {
    std::array<std::atomic<pid_t>, kNumRanks> ranks;
    std::atomic<bool> finished;
  };
  SharedAcrossForks<Job> job_;
};

TEST_F(Launcher, ThatIsKilledTakesItsRanksWithIt) {
  ChildProcess launcher = start();
  launcher.kill(SIGKILL);
  const auto end = launcher.wait();
  ASSERT_TRUE(end);
  EXPECT_EQ(end->signal, SIGKILL);
}

TEST_F(Launcher, ThatIsKilledTogetherWithItsRanksLeavesNothing) {
  ChildProcess launcher = start();
  launcher.kill(SIGKILL);
  signal_ranks(SIGKILL);
  ASSERT_TRUE(launcher.wait());
}

// The last rank stops first and continues last: the others have sent it pings before they were stopped, and look for
// the answers before they can arrive.
TEST_F(Launcher, WhoseRanksAreAllStoppedForLongGoesOnAfterwards) {
  Environment environment = hasty();
  environment.liveness = 1s;
  ChildProcess launcher = start(environment);
  kill(job_->ranks.back(), SIGSTOP);
  std::this_thread::sleep_for(250ms);
  signal_ranks(SIGSTOP);
  std::this_thread::sleep_for(1500ms);
  for (const auto& rank : job_->ranks) {
    std::this_thread::sleep_for(30ms);
    kill(rank, SIGCONT);
  }
  std::this_thread::sleep_for(300ms);
  job_->finished = true;
  expect_returned(launcher);
}

/// A launcher whose rank 1 raises the signal.
ChildProcess launch_and_raise(
    int number, const std::function<void()>& prepare = [] {}) {
  return ChildProcess([=] {
    prepare();
    World::spawn(kNumRanks,
                 [number](World& world) {
                   std::this_thread::sleep_for(50ms);
                   if (world.rank() == RankId(1)) raise(number);
                   world.barrier();
                 },
                 {.kind = WorldKind::shm, .environment = hasty()});
  });
}

TEST_F(Launcher, ThatCatchesSignalsStillSeesHowItsRanksEnd) {
  ChildProcess launcher = launch_and_raise(SIGKILL, [] {
    struct sigaction interrupt {};
    interrupt.sa_handler = [](int) {};  // without SA_RESTART
    sigaction(SIGALRM, &interrupt, nullptr);
    const itimerval storm = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &storm, nullptr);
  });
  expect_error(launcher, ErrorCode::peer_lost, "rank 1 was killed by signal 9");
}

TEST_F(Launcher, NamesMemoryAsAPossibleCauseOfSignal9Alone) {
  for (const int number : {SIGKILL, SIGTERM}) {
    const auto end = launch_and_raise(number).wait();
    ASSERT_TRUE(end);
    EXPECT_EQ(end->error.find("memory") != std::string::npos, number == SIGKILL) << end->error;
  }
}

}  // namespace
}  // namespace shunt::test
