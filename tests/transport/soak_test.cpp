// Ranks die at any moment, also while they join.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <thread>

#include "shunt/engine.hpp"
#include "support/child_process.hpp"
#include "support/round_trip.hpp"
#include "support/spawn_recorder.hpp"
#include "support/traces.hpp"

namespace shunt::test {
namespace {

constexpr std::int32_t kNumRanks = 3;

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

class Soak : public LeavesNoTrace {};

TEST_F(Soak, TwoHundredRanksKilledAtRandomMomentsLeaveNoHangAndNothingBehind) {
  std::mt19937_64 random(20240607);
  for (int run = 0; run < 200 && !HasFailure(); ++run) {
    const std::size_t victim = random() % kNumRanks;
    const std::chrono::microseconds delay(random() % 30'000);
    SCOPED_TRACE(fmt::format("run {}: rank {} is killed after {} us", run, victim, delay.count()));
    const auto before = find_traces();
    SpawnRecorder recorder;
    std::optional<ChildProcess> killer(std::in_place,
                                       [&, launcher = getpid()] { kill_child(launcher, victim, delay); });
    const auto end = recorder.spawn(
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

}  // namespace
}  // namespace shunt::test
