// What engines on devices of one node share: a heap, multiprocessors, and connections to a device.
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/small_shuffle.hpp"
#include "support/require_error.hpp"

namespace shunt::test {
namespace {

using DeviceHeap = OnDevice;

EngineOptions with_heap(std::size_t bytes) { return kDeviceThreads.options({.hidden = 8}, small_device(64, bytes)); }

TEST_F(DeviceHeap, OfDifferentSizesIsRefusedByAllRanks) {
  on_ranks(3, [](World& world) {
    for (int i = 0; i < 20; ++i) {
      const std::size_t bytes = world.rank().value == 2 ? 2 << 20 : 1 << 20;
      require_error([&] { const Engine engine(world, with_heap(bytes)); }, ErrorCode::mismatch, "heap_bytes is");
    }
    SmallShuffle(world, kDeviceThreads).round_trip();
  });
}

TEST_F(DeviceHeap, IsThatOfTheFirstEngine) {
  on_ranks(2, [](World& world) {
    const Engine first(world, with_heap(4 << 20));
    const Engine second(world, with_heap(1 << 20));
    EXPECT_NO_THROW((void)second.allocate(f32, 1, 2 << 18));
    require_error([&] { const Engine third(world, with_heap(8 << 20)); }, ErrorCode::invalid_argument,
                  "the first engine of this world on device");
    require_error([&] { (void)first.allocate(f32, 1, 8 << 18); }, ErrorCode::system, "");
  });
}

TEST_F(DeviceHeap, WithoutRoomOnOneRankForAnEngineIsAnErrorOnAllAndTheCallCanBeRepeated) {
  on_ranks(2, [](World& world) {
    SmallShuffle first(world, kDeviceThreads);
    {
      const bool is_full = world.rank().value == 1;
      const auto all = is_full ? take_all_memory(first.engine()) : std::vector<Tensor>();
      require_error([&] { SmallShuffle(world, kDeviceThreads); }, ErrorCode::system,
                    is_full ? "no room for" : "rank 1 has no room");
    }
    SmallShuffle(world, kDeviceThreads).round_trip();
    first.round_trip();
  });
}

// Each stream that waits needs a connection of its own, or what comes later on another would stand behind it.
TEST(DeviceConnections, AreAsManyAsTheStreamsOfAProcessAtLeast) {
  SHUNT_NEEDS(kDeviceThreads);
  SpawnOptions options = kDeviceThreads.spawn(Topology::single_node(2));
  options.environment.device_connections = 1;
  const auto run = [](World& world) {
    require_error([&] { SmallShuffle(world, kDeviceThreads); }, ErrorCode::unsupported, "CUDA_DEVICE_MAX_CONNECTIONS");
    world.barrier();
  };
  ASSERT_NO_THROW(World::spawn(2, run, options));
}

TEST(DeviceConnections, NeedBeNoMoreThanOneForARankPerProcess) {
  SHUNT_NEEDS(kDeviceProcesses);
  SpawnOptions options = kDeviceProcesses.spawn(Topology::single_node(3));
  options.environment.device_connections = 1;
  const auto run = [](World& world) {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);  // CUDA starts in this process
    SmallShuffle first(world, kDeviceProcesses), second(world, kDeviceProcesses);
    for (int turn = 0; turn < 3; ++turn) {
      first.round_trip();
      second.round_trip();
    }
    world.barrier();
  };
  ASSERT_NO_THROW(World::spawn(3, run, options));
}

TEST(DeviceFewSms, AreAtMostThoseOfTheDeviceAndNeedBulkCopies) {
  SHUNT_NEEDS(kDeviceThreads);
  const std::string why = kDeviceFewSms.why_not();
  EXPECT_TRUE(why.empty() || why.find("has no bulk copies") != std::string::npos) << why;
  Place too_many = kDeviceFewSms;
  too_many.sms = 100'000;
  ASSERT_NO_THROW(kDeviceThreads.run(1, [&](World& world) {
    require_error([&] { const Engine engine(world, too_many.options({.hidden = 8})); }, ErrorCode::invalid_argument,
                  "device.sms is 100000, expected 0 to");
  }));
}

}  // namespace
}  // namespace shunt::test
