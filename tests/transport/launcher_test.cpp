// Signals to the launcher of a job of processes, or to all of the job.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "support/child_process.hpp"
#include "support/eventually.hpp"
#include "support/round_trip.hpp"
#include "support/spawn_recorder.hpp"
#include "support/traces.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;

constexpr std::int32_t kNumRanks = 3;

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
