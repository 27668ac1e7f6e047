// Ranks as processes that share a device.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/cuda/device_case.hpp"

namespace shunt::test {
namespace {

/// Asks in a process of its own: who has asked CUDA can't fork ranks that use it.
bool has_device() {
  const pid_t child = fork();
  if (child == 0) _exit(why_no_device().empty() ? 0 : 1);
  int status = 1;
  waitpid(child, &status, 0);
  return status == 0;
}

// Alone in its process, as ctest runs it: after another test of this program CUDA is not to be had in forked ranks.
TEST(DeviceProcesses, GiveTheSameBits) {
  if (!has_device()) GTEST_SKIP() << "no CUDA device";
  const Topology topology = Topology::single_node(3);
  std::vector<ShuffleCase> cases;
  for (std::uint64_t seed = 0; cases.size() < 8; ++seed)
    if (ShuffleCase drawn = random_shuffle_case(seed, topology); is_for_devices(drawn))
      cases.push_back(std::move(drawn));
  const auto run = [&](World& world) {
    const DeviceHeap heap(world, {.bytes = 64 << 20});
    Arena arena(16 << 20);
    for (const ShuffleCase& each : cases) run_device_case(world, heap, arena, each);
    world.barrier();
  };
  EXPECT_NO_THROW(World::spawn(3, run, {.kind = WorldKind::shm, .topology = topology}));
}

}  // namespace
}  // namespace shunt::test
