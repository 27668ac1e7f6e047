// Ranks as processes that share a device.
#include <gtest/gtest.h>

#include <csignal>

#include "engine/cuda/decode_case.hpp"
#include "engine/cuda/device_case.hpp"
#include "engine/cuda/small_shuffle.hpp"
#include "support/survivors.hpp"

namespace shunt::test {
namespace {

// Each alone in its process, as ctest runs them: after another test of this program CUDA is not to be had in forked
// ranks.
TEST(DeviceProcesses, GiveTheSameBits) {
  if (!forked_ranks_have_device()) GTEST_SKIP() << "no CUDA device";
  const Topology topology = Topology::single_node(3);
  std::vector<ShuffleCase> cases;
  for (std::uint64_t seed = 0; cases.size() < 8; ++seed)
    if (ShuffleCase drawn = random_shuffle_case(seed, topology); is_for_devices(drawn))
      cases.push_back(std::move(drawn));
  const auto run = [&](World& world) {
    const DeviceHeap heap(world, {.bytes = 64 << 20});
    Arena arena(16 << 20);
    for (const ShuffleCase& each : cases) {
      run_device_case(world, heap, arena, each);
      run_device_case(world, heap, arena, each, {.spare_rows = 1, .rows_with_plan = true});
    }
    world.barrier();
  };
  EXPECT_NO_THROW(World::spawn(3, run, {.kind = WorldKind::shm, .topology = topology}));
}

// Others still write into its memory, which on this driver lives until they let go of it.
TEST(DeviceProcesses, OneThatDiesIsNamedAndLeavesTheDeviceUsable) {
  if (!forked_ranks_have_device()) GTEST_SKIP() << "no CUDA device";
  constexpr RankId kCulprit(1);
  Survivors survivors;
  const SpawnEnd end = survivors.spawn(
      3,
      [&](World& world) {
        const DeviceHeap heap(world, {.bytes = 16 << 20});
        SmallShuffle shuffle(world, heap, std::chrono::hours(1));
        shuffle.plan();
        if (world.rank() == kCulprit) raise(SIGKILL);
        try {
          for (;;) (void)shuffle.dispatch().wait();
        } catch (const Error&) {
          Arena arena(1 << 20);
          poison(arena.take(1 << 10), 1 << 10, shuffle.engine().stream());
          throw;
        }
      },
      hasty());
  EXPECT_TRUE(end.threw);
  survivors.expect_all_were_told(kCulprit, ErrorCode::peer_lost, {"ended"});
}

TEST(DeviceProcesses, DecodeTheSameBits) {
  if (!forked_ranks_have_device()) GTEST_SKIP() << "no CUDA device";
  const DecodeShape shape{.map = ExpertMap::contiguous(9, 3)};
  std::vector<DecodeStep> steps;
  for (const std::int64_t tokens : {16, 1, 0, 7}) steps.push_back(draw_decode_step(1, shape, {tokens, 16 - tokens, 3}));
  const auto run = [&](World& world) {
    const DeviceHeap heap(world, {.bytes = 16 << 20});
    DecodingRank rank(world, heap, shape);
    for (const DecodeStep& step : steps)
      for (const auto calls : {DecodingRank::Calls::whole, DecodingRank::Calls::halves}) rank.take(step, calls);
    world.barrier();
  };
  EXPECT_NO_THROW(World::spawn(3, run, {.kind = WorldKind::shm}));
}

}  // namespace
}  // namespace shunt::test
