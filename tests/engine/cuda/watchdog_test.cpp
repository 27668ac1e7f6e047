// What a kernel that waits reads about its peers; here the host plays the kernel.
#include "engine/cuda/watchdog.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <latch>

#include "engine/cuda/fault.hpp"
#include "engine/cuda/tag.hpp"
#include "shunt/world.hpp"
#include "support/require_error.hpp"

namespace shunt::test {
namespace {

using ::testing::HasSubstr;

/// A kernel's wait, without a deadline.
class Kernel {
 public:
  explicit Kernel(World& world)
      : words_(device::WatchdogWords::num_words(world.size())), watch_(watchdog_, world.impl(), watchdog_words()) {}

  void wait_for_the_loss_of(std::int32_t rank) {
    while (!has_lost(rank)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  [[nodiscard]] bool has_lost(std::int32_t rank) {
    std::atomic_ref(watchdog_words().waits()).store(1);
    return std::atomic_ref(watchdog_words().lost(rank)).load() != 0;
  }

  /// Returns once the watchdog has looked at least once, and found out what it could.
  void be_watched() {
    for (int looks = 0; looks < 2; ++looks) {
      std::atomic_ref(watchdog_words().waits()).store(1);
      while (std::atomic_ref(watchdog_words().waits()).load() != 0) std::this_thread::yield();
    }
  }

  [[nodiscard]] device::Watchdog::Watch& watch() { return watch_; }

  /// What the host throws when the kernel has left.
  Error error_about(std::int32_t rank) {
    const device::Tag tag{OpKind::dispatch, device::Phase::begin, 7};
    const device::FaultRecord record{device::FaultRecord::lost, rank, tag.packed(), 1, 0};
    try {
      device::throw_if_faulty(record, watch_, RankId(0), std::chrono::milliseconds(1), "");
    } catch (const Error& error) {
      return error;
    }
    throw std::runtime_error("no Error was thrown");
  }

 private:
  [[nodiscard]] device::WatchdogWords watchdog_words() { return {words_.data()}; }

  std::vector<std::uint32_t> words_;
  device::Watchdog watchdog_;
  device::Watchdog::Watch watch_;
};

TEST(Watchdog, RanksThatAreLeftOutAreNoLoss) {
  std::latch is_watched(1);
  EXPECT_THROW(World::spawn(3,
                            [&](World& world) {
                              if (world.rank().value == 1) throw std::runtime_error("no more coffee");
                              if (world.rank().value == 2) return is_watched.wait();
                              Kernel kernel(world);
                              kernel.wait_for_the_loss_of(2);  // as if all were waited for
                              kernel.watch().leave_out({false, true, false});
                              kernel.be_watched();
                              EXPECT_FALSE(kernel.has_lost(1));
                              EXPECT_FALSE(kernel.has_lost(2));
                              is_watched.count_down();
                              kernel.wait_for_the_loss_of(2);
                              EXPECT_THAT(kernel.error_about(2).what(), HasSubstr("rank 2 has left the world"));
                            }),
               std::runtime_error);
}

// Only ranks that are waited for are pinged.
TEST(Watchdog, AProcessThatStopsIsLost) {
  SpawnOptions options{.kind = WorldKind::shm};
  options.environment.liveness = std::chrono::milliseconds(300);
  const auto run = [](World& world) {
    if (world.rank().value == 1) (void)raise(SIGSTOP);
    Kernel kernel(world);
    kernel.wait_for_the_loss_of(1);
    throw kernel.error_about(1);
  };
  ASSERT_NO_THROW(
      require_error([&] { World::spawn(2, run, options); }, ErrorCode::peer_lost, "rank 1 has not answered"));
}

}  // namespace
}  // namespace shunt::test
