// What becomes of a job of processes when signals hit its launcher or all of it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "support/child_process.hpp"
#include "support/round_trip.hpp"
#include "support/survivors.hpp"
#include "support/traces.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;

constexpr std::int32_t kNumRanks = 3;

/// A launcher in a process of its own. Its orphans become this process's children, so that none can hide.
class Launcher : public LeavesNoTrace {
 protected:
  void SetUp() override {
    LeavesNoTrace::SetUp();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  void TearDown() override {
    const auto guard = std::chrono::steady_clock::now() + 10s;
    while (waitpid(-1, nullptr, WNOHANG) >= 0 && std::chrono::steady_clock::now() < guard)
      std::this_thread::sleep_for(1ms);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    LeavesNoTrace::TearDown();
  }

  /// Returns once all ranks have met; they then work until `finished` is set.
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
    const auto guard = std::chrono::steady_clock::now() + 20s;
    for (const auto& rank : job_->ranks)
      while (rank == 0 && std::chrono::steady_clock::now() < guard) std::this_thread::sleep_for(1ms);
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

// The last rank stops first and goes on last: the others have asked it for a sign of life before they were stopped, and
// look for the answer before it can come.
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
  const auto end = launcher.wait();
  ASSERT_TRUE(end);
  EXPECT_TRUE(end->returned) << end->error;
}

TEST_F(Launcher, ThatCatchesSignalsStillSeesHowItsRanksEnd) {
  ChildProcess launcher([] {
    struct sigaction interrupt {};
    interrupt.sa_handler = [](int) {};  // without SA_RESTART
    sigaction(SIGALRM, &interrupt, nullptr);
    const itimerval storm = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &storm, nullptr);
    World::spawn(kNumRanks,
                 [](World& world) {
                   std::this_thread::sleep_for(50ms);
                   if (world.rank() == RankId(1)) raise(SIGKILL);
                   world.barrier();
                 },
                 {.kind = WorldKind::shm, .environment = hasty()});
  });
  const auto end = launcher.wait();
  ASSERT_TRUE(end);
  EXPECT_NE(end->error.find("rank 1 was killed by signal 9"), std::string::npos) << end->error;
}

TEST_F(Launcher, NamesMemoryAsAPossibleCauseOfSignal9Alone) {
  for (const int number : {SIGKILL, SIGTERM}) {
    ChildProcess launcher([number] {
      World::spawn(kNumRanks,
                   [number](World& world) {
                     if (world.rank() == RankId(1)) raise(number);
                     world.barrier();
                   },
                   {.kind = WorldKind::shm, .environment = hasty()});
    });
    const auto end = launcher.wait();
    ASSERT_TRUE(end);
    EXPECT_EQ(end->error.find("memory") != std::string::npos, number == SIGKILL) << end->error;
  }
}

}  // namespace
}  // namespace shunt::test
