// Operations that keep to few multiprocessors: the same bits as on all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/cuda/device_case.hpp"
#include "kernels/cuda/bulk_copy_rows.hpp"
#include "shunt/error.hpp"
#include "support/cuda/launches.hpp"
#include "support/seeds.hpp"

#define SHUNT_NEEDS_BULK_COPIES() \
  SHUNT_NEEDS_DEVICE();           \
  if (!device::has_bulk_copies()) GTEST_SKIP() << "a device without bulk copies"

namespace shunt::test {
namespace {

void run_all(const Topology& topology, const std::vector<ShuffleCase>& cases, const DeviceCaseOptions& options,
             std::size_t bytes = 64 << 20) {
  const auto run = [&](World& world) {
    const DeviceHeap heap(world, {.bytes = bytes});
    Arena arena(bytes / 2);
    world.barrier();
    for (const ShuffleCase& each : cases) run_device_case(world, heap, arena, each, options);
    world.barrier();
  };
  ASSERT_NO_THROW(World::spawn(topology.num_ranks(), run, {.topology = topology}));
}

std::vector<ShuffleCase> draw(const Topology& topology, std::size_t count, const EngineOptions& options,
                              const CaseLimits& limits) {
  std::vector<ShuffleCase> cases;
  for (std::uint64_t seed = 0; cases.size() < count; ++seed)
    if (ShuffleCase drawn = random_shuffle_case(seed, topology, options, limits); is_for_devices(drawn))
      cases.push_back(std::move(drawn));
  return cases;
}

class DeviceFewSms : public ::testing::TestWithParam<std::int32_t> {};

TEST_P(DeviceFewSms, GiveTheReferenceBitForBit) {
  SHUNT_NEEDS_BULK_COPIES();
  for (const auto& [topology, seeds] : choose_seeds(7000 + static_cast<std::uint64_t>(GetParam()), 120)) {
    std::vector<ShuffleCase> cases;
    for (const std::uint64_t seed : seeds)
      if (ShuffleCase drawn = random_shuffle_case(seed, topology); is_for_devices(drawn))
        cases.push_back(std::move(drawn));
    run_all(topology, cases, {.sms = GetParam()});
    run_all(topology, cases, {.spare_rows = 2, .rows_with_plan = true, .sms = GetParam()});
  }
}
INSTANTIATE_TEST_SUITE_P(Counts, DeviceFewSms, ::testing::Values(1, 3, 20));

TEST(DeviceFewSms, CutRowsThatDoNotFitIntoSharedMemory) {
  SHUNT_NEEDS_BULK_COPIES();
  const Topology topology = Topology::single_node(3);
  const CaseLimits limits{.experts = 12, .topk = 4, .tokens = 12};
  for (const EngineOptions& options :
       {EngineOptions{.hidden = 16384, .dtype = f32}, EngineOptions{.hidden = 8200, .dtype = bf16},
        EngineOptions{.hidden = 7168, .dtype = bf16, .result_dtype = f32}})
    run_all(topology, draw(topology, 3, options, limits), {.sms = 2}, 256 << 20);
}

TEST(DeviceFewSms, GiveTheReferenceForManyTokensAndTerms) {
  SHUNT_NEEDS_BULK_COPIES();
  const Topology topology = Topology::virtual_nodes(4, 2);
  const CaseLimits limits{.experts = 300, .topk = 32, .tokens = 900};
  run_all(topology, draw(topology, 6, {.hidden = 24, .dtype = bf16}, limits), {.sms = 3});
  run_all(topology, draw(topology, 6, {.hidden = 520, .dtype = f16}, {.experts = 64, .topk = 8, .tokens = 300}),
          {.sms = 5}, 256 << 20);
}

TEST(DeviceFewSms, GiveTheReferenceForMoreTermsThanAWarpHasLanes) {
  SHUNT_NEEDS_BULK_COPIES();
  const Topology topology = Topology::single_node(2);
  for (const std::int32_t topk : {33, Routing::kMaxTopK}) {
    const CaseLimits limits{.experts = 300, .topk = topk, .tokens = 20, .least_topk = topk};
    run_all(topology, draw(topology, 8, {.hidden = 64, .dtype = bf16}, limits), {.sms = 2});
  }
}

TEST(DeviceFewSms, GiveTheSameBitsAThousandTimes) {
  SHUNT_NEEDS_BULK_COPIES();
  const Topology topology = Topology::single_node(4);
  const ShuffleCase drawn =
      draw(topology, 1, {.hidden = 1024, .dtype = bf16}, {.experts = 16, .topk = 8, .tokens = 16})[0];
  run_all(topology, {drawn}, {.sms = 2, .repeats = 1000});
}

TEST(DeviceFewSms, HaveABlockEachAndNoMore) {
  SHUNT_NEEDS_BULK_COPIES();
  constexpr std::int32_t kSms = 20;
  constexpr std::int64_t kTokens = 500;
  ASSERT_NO_THROW(World::spawn(1, [&](World& world) {
    const DeviceHeap heap(world, {.bytes = 64 << 20});
    DeviceEngine engine(world, heap, {.hidden = 512, .max_tokens = kTokens, .sms = kSms});
    const Tensor experts = heap.allocate(f32, kTokens, 1);
    poison(experts.data, experts.bytes(), engine.stream(), 0);
    const DevicePlan plan =
        engine.plan({.experts = reinterpret_cast<const std::int32_t*>(experts.data), .num_tokens = kTokens},
                    ExpertMap::contiguous(1, 1), {.max_rows = kTokens});
    const Tensor x = heap.allocate(bf16, kTokens, 512);
    const Tensor rows = heap.allocate(bf16, kTokens, 512);
    const auto expect_few = [&](const char* operation, const std::function<void()>& work) {
      EXPECT_THAT(blocks_of_kernels(engine.stream(), work), ::testing::UnorderedElementsAre(1, kSms, 1)) << operation;
    };
    expect_few("dispatch", [&] { (void)engine.dispatch(plan, x, {.out = rows}); });
    expect_few("combine", [&] { (void)engine.combine(plan, rows, {.out = x}); });
    expect_few("dispatch_backward", [&] { (void)engine.dispatch_backward(plan, rows, {.out = x}); });
  }));
}

TEST(DeviceFewSms, AreAtMostThoseOfTheDevice) {
  SHUNT_NEEDS_BULK_COPIES();
  World::spawn(1, [](World& world) {
    const DeviceHeap heap(world, {.bytes = 1 << 20});
    for (const std::int32_t sms : {-1, 100'000}) {
      try {
        const DeviceEngine engine(world, heap, {.hidden = 8, .sms = sms});
        ADD_FAILURE() << "an engine with " << sms;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      }
    }
  });
}

}  // namespace
}  // namespace shunt::test
