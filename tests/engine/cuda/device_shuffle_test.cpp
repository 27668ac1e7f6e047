// Every operation on a device against the reference that the CPU engine is compared with: bit for bit.
#include <gtest/gtest.h>

#include "engine/cuda/device_case.hpp"
#include "support/seeds.hpp"

namespace shunt::test {
namespace {

constexpr std::size_t kHeapBytes = 64 << 20;
constexpr std::size_t kArenaBytes = 16 << 20;

void run_all(const Topology& topology, const std::vector<ShuffleCase>& cases, const DeviceCaseOptions& options = {}) {
  const auto run = [&](World& world) {
    const DeviceHeap heap(world, {.bytes = kHeapBytes});
    Arena arena(kArenaBytes);
    world.barrier();
    for (const ShuffleCase& each : cases) run_device_case(world, heap, arena, each, options);
    world.barrier();
  };
  ASSERT_NO_THROW(World::spawn(topology.num_ranks(), run, {.topology = topology}));
}

void expect_as_reference(std::uint64_t first_world, std::uint64_t num_cases,
                         std::optional<std::int64_t> spare_rows = std::nullopt) {
  for (const auto& [topology, seeds] : choose_seeds(first_world, num_cases)) {
    std::vector<ShuffleCase> cases;
    for (const std::uint64_t seed : seeds)
      if (ShuffleCase drawn = random_shuffle_case(seed, topology); is_for_devices(drawn))
        cases.push_back(std::move(drawn));
    run_all(topology, cases, {.spare_rows = spare_rows});
  }
}

class DeviceShuffle : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(DeviceShuffle, EqualsTheReferenceBitForBit) {
  SHUNT_NEEDS_DEVICE();
  expect_as_reference(GetParam() * 1000, 240);
}
INSTANTIATE_TEST_SUITE_P(Shards, DeviceShuffle, ::testing::Range<std::uint64_t>(0, 4));

TEST(DeviceShuffleBounded, GivesTheSameBitsWithRowsToSpare) {
  SHUNT_NEEDS_DEVICE();
  expect_as_reference(5000, 120, 0);
  expect_as_reference(6000, 120, 7);
}

class DeviceShuffleOfRanks : public ::testing::TestWithParam<std::int32_t> {};

TEST_P(DeviceShuffleOfRanks, EqualsTheReferenceBitForBit) {
  SHUNT_NEEDS_DEVICE();
  const Topology topology = Topology::single_node(GetParam());
  std::vector<ShuffleCase> cases;
  for (std::uint64_t seed = 0; cases.size() < 24; ++seed)
    if (ShuffleCase drawn = random_shuffle_case(seed, topology); is_for_devices(drawn))
      cases.push_back(std::move(drawn));
  run_all(topology, cases);
}
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceShuffleOfRanks, ::testing::Values(1, 2, 4, 7, 8, 16));

TEST(DeviceShuffle, EqualsTheReferenceOverManyTilesOfTokens) {
  SHUNT_NEEDS_DEVICE();
  const Topology topology = Topology::single_node(3);
  const CaseLimits limits{.experts = 300, .topk = 32, .tokens = 900};
  std::vector<ShuffleCase> cases;
  for (std::uint64_t seed = 0; cases.size() < 12; ++seed) {
    const EngineOptions options{.hidden = 24, .dtype = std::array{bf16, f32, fp8_e4m3}[seed % 3]};
    if (ShuffleCase drawn = random_shuffle_case(seed, topology, options, limits); is_for_devices(drawn))
      cases.push_back(std::move(drawn));
  }
  run_all(topology, cases);
}

class DeviceRepeats : public ::testing::TestWithParam<std::tuple<DType, Layout>> {};

TEST_P(DeviceRepeats, GiveTheSameBitsAThousandTimes) {
  SHUNT_NEEDS_DEVICE();
  const auto [dtype, layout] = GetParam();
  const Topology topology = Topology::single_node(4);
  std::uint64_t seed = 0;
  const auto draw = [&] { return random_shuffle_case(seed, topology, {.hidden = 264, .dtype = dtype}); };
  ShuffleCase drawn = draw();
  const auto suits = [&] {  // fp8 is quantised, not passed on
    return is_for_devices(drawn) && drawn.routing.options.layout == layout && drawn.x[0].dtype() != fp8_e4m3 &&
           drawn.expected.plans[0].num_tokens > 4;
  };
  while (!suits()) ++seed, drawn = draw();
  run_all(topology, {drawn}, {.repeats = 1000});
}
INSTANTIATE_TEST_SUITE_P(Thousand, DeviceRepeats,
                         ::testing::Combine(::testing::Values(f32, bf16, f16, fp8_e4m3),
                                            ::testing::Values(Layout::expert_major, Layout::token_unique)));

}  // namespace
}  // namespace shunt::test
