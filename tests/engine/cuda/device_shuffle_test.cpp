// Every operation on a device against the reference that the CPU engine is compared with: bit for bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "core/cuda/captured_graph.hpp"
#include "engine/cuda/device_case.hpp"
#include "engine/cuda/small_shuffle.hpp"
#include "support/dice.hpp"
#include "support/require.hpp"
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

void expect_as_reference(std::uint64_t first_world, std::uint64_t num_cases, const DeviceCaseOptions& options = {}) {
  for (const auto& [topology, seeds] : choose_seeds(first_world, num_cases)) {
    std::vector<ShuffleCase> cases;
    for (const std::uint64_t seed : seeds)
      if (ShuffleCase drawn = random_shuffle_case(seed, topology); is_for_devices(drawn))
        cases.push_back(std::move(drawn));
    run_all(topology, cases, options);
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
  expect_as_reference(5000, 120, {.spare_rows = 0});
  expect_as_reference(6000, 120, {.spare_rows = 7});
}

TEST(DeviceShuffleBounded, GivesTheSameBitsInRowsThatCameWithThePlan) {
  SHUNT_NEEDS_DEVICE();
  expect_as_reference(8000, 240, {.spare_rows = 3, .rows_with_plan = true});
}

// Without a graph the rows are their rank's until it dispatches, whatever others have called.
TEST(DeviceShuffleBounded, RowsThatCameWithThePlanAreNotWrittenBeforeTheirRankDispatches) {
  SHUNT_NEEDS_DEVICE();
  ASSERT_NO_THROW(World::spawn(2, [](World& world) {
    const DeviceHeap heap(world, {.bytes = 16 << 20});
    SmallShuffle shuffle(world, heap, std::chrono::seconds(20));
    const Tensor rows = heap.allocate(f32, 16, SmallShuffle::kHidden);
    const auto is_poison = [](std::byte byte) { return byte == std::byte{0xa5}; };
    poison(rows.data, rows.bytes(), shuffle.engine().stream());
    shuffle.plan({.max_rows = 16, .rows = rows});
    (void)shuffle.current_plan().sizes();
    if (world.rank().value == 0) (void)shuffle.dispatch();
    world.barrier();
    if (world.rank().value == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      require(std::ranges::all_of(download(rows.data, rows.bytes(), nullptr), is_poison), "nobody has written here");
      (void)shuffle.dispatch();
    }
    (void)shuffle.combine().wait();
    require(!std::ranges::all_of(download(rows.data, rows.bytes(), nullptr), is_poison), "rows have come");
    world.barrier();
  }));
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

// Slots don't depend on the bound: what is dropped is what stands beyond it, also in a graph.
TEST(DeviceShuffleBounded, DropsTheRowsBeyondTheBoundAndNoOthers) {
  SHUNT_NEEDS_DEVICE();
  constexpr std::int64_t kTokens = 300;
  constexpr std::int64_t kHidden = 24;
  constexpr std::int32_t kTopk = 3;
  ASSERT_NO_THROW(World::spawn(3, [](World& world) {
    const DeviceHeap heap(world, {.bytes = 16 << 20});
    DeviceEngine engine(world, heap, {.hidden = kHidden, .dtype = f32, .max_tokens = kTokens});
    std::mt19937_64 generator(world.rank().index());
    Dice dice(generator);
    std::vector<std::int32_t> experts;
    std::vector<float> values;
    for (std::int64_t token = 0; token < kTokens; ++token) {
      const auto order = dice.permutation(12);
      experts.insert(experts.end(), order.begin(), order.begin() + kTopk);
      for (std::int64_t col = 0; col < kHidden; ++col) values.push_back(dice.weight());
    }
    Arena arena(1 << 20);
    const DeviceRouting routing{.experts = arena.put(experts), .num_tokens = kTokens, .topk = kTopk};
    const ConstTensor x = borrow(static_cast<const void*>(arena.put(values)), f32, kTokens, kHidden);
    const ExpertMap map = ExpertMap::contiguous(12, 3);
    world.barrier();
    const auto download_rows = [&](const Tensor& rows, std::int64_t count) {
      return download(rows.data, static_cast<std::size_t>(count) * rows.row_bytes(), engine.stream());
    };
    const DevicePlan exact = engine.plan(routing, map, {.alignment = 4});
    constexpr std::int64_t kBound = 601;  // in the middle of a block of padding or of an expert, of 900 rows on average
    const auto expected = download_rows(engine.dispatch(exact, x).wait().rows, kBound);

    const DevicePlanOptions bounded{.alignment = 4, .max_rows = kBound, .overflow = Overflow::drop};
    const Tensor rows = heap.allocate(f32, kBound, kHidden);
    DevicePlan plan = engine.plan(routing, map, bounded);
    poison(rows.data, rows.bytes(), engine.stream());
    (void)engine.dispatch(plan, x, {.out = rows}).wait();
    EXPECT_TRUE(plan.sizes().overflowed);
    EXPECT_TRUE(download_rows(rows, kBound) == expected);

    const device::CapturedGraph graph(engine.stream(), [&] {
      plan = engine.plan(routing, map, bounded);
      (void)engine.dispatch(plan, x, {.out = rows});
    });
    for (int turn = 0; turn < 3; ++turn) {
      poison(rows.data, rows.bytes(), engine.stream());
      world.barrier();
      graph.replay();
      device::check(cudaStreamSynchronize(engine.stream()), "replay");  // before a copy may stand behind it
      EXPECT_TRUE(download_rows(rows, kBound) == expected);
      world.barrier();
    }
  }));
}

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

/// Cases of several nodes in which some experts have copies.
std::vector<ShuffleCase> cases_with_replicas(const Topology& topology, std::size_t count, const CaseLimits& limits,
                                             const auto& suits) {
  std::vector<ShuffleCase> cases;
  for (std::uint64_t seed = 0; cases.size() < count; ++seed)
    if (ShuffleCase drawn = random_shuffle_case(seed, topology, random_engine_options(seed), limits);
        is_for_devices(drawn) && drawn.routing.map.has_replicas() && suits(drawn))
      cases.push_back(std::move(drawn));
  return cases;
}

TEST(DeviceShuffle, ChoosesTheCopiesThatTheReferenceChooses) {
  SHUNT_NEEDS_DEVICE();
  for (const Topology& topology : {Topology::virtual_nodes(6, 3), Topology::single_node(4)}) {
    const CaseLimits limits{.experts = 60, .topk = 8, .tokens = 300};
    run_all(topology, cases_with_replicas(topology, 8, limits, [](const ShuffleCase&) { return true; }));
  }
}

// Were copies chosen anew from what a capacity leaves of a token, some would be others.
TEST(DeviceShuffle, DropsAfterCopiesAreChosen) {
  SHUNT_NEEDS_DEVICE();
  const auto drops = [](const ShuffleCase& each) {
    return each.routing.options.layout == Layout::token_unique &&
           std::ranges::any_of(each.expected.plans, [](const PlanData& plan) { return plan.num_dropped > 0; });
  };
  const Topology topology = Topology::virtual_nodes(6, 3);
  run_all(topology, cases_with_replicas(topology, 12, {.experts = 16, .topk = 8, .tokens = 30}, drops));
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
                                            ::testing::Values(Layout::expert_major, Layout::token_unique)),
                         [](const auto& parameter) {
                           return fmt::format("{}_{}", to_string(std::get<DType>(parameter.param)),
                                              to_string(std::get<Layout>(parameter.param)));
                         });

}  // namespace
}  // namespace shunt::test
