// Operations that keep to few multiprocessors: the same bits as on all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/rank_of_case.hpp"
#include "kernels/cuda/bulk_copy_rows.hpp"
#include "support/cuda/launches.hpp"
#include "support/require_error.hpp"
#include "support/seeds.hpp"

#define SHUNT_NEEDS_BULK_COPIES() \
  SHUNT_NEEDS(kDeviceThreads);    \
  if (!device::has_bulk_copies()) GTEST_SKIP() << "a device without bulk copies"

namespace shunt::test {
namespace {

void run_all(const Topology& topology, const std::vector<ShuffleCase>& cases, std::int32_t sms,
             std::uint64_t repeats = 1) {
  DeviceOptions device = small_device();
  device.heap_bytes = std::size_t{256} << 20;
  device.sms = sms;
  const auto run = [&](World& world) {
    for (const ShuffleCase& each : cases) run_case(world, kDeviceThreads, each, {.repeats = repeats}, device);
    world.barrier();
  };
  ASSERT_NO_THROW(World::spawn(topology.num_ranks(), run, kDeviceThreads.spawn(topology)));
}

std::vector<ShuffleCase> draw(const Topology& topology, std::size_t count, const EngineOptions& options,
                              const CaseLimits& limits) {
  std::vector<ShuffleCase> cases;
  for (std::uint64_t seed = 0; cases.size() < count; ++seed)
    if (ShuffleCase drawn = random_shuffle_case(seed, topology, options, limits);
        drawn.routing.options.layout != Layout::padded)
      cases.push_back(std::move(drawn));
  return cases;
}

class DeviceFewSms : public ::testing::TestWithParam<std::int32_t> {};

TEST_P(DeviceFewSms, GiveTheReferenceBitForBit) {
  SHUNT_NEEDS_BULK_COPIES();
  for (const auto& [topology, seeds] : choose_seeds(7000 + static_cast<std::uint64_t>(GetParam()), 120)) {
    std::vector<ShuffleCase> cases;
    for (const std::uint64_t seed : seeds) cases.push_back(random_shuffle_case(seed, topology));
    run_all(topology, cases, GetParam());
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
    run_all(topology, draw(topology, 3, options, limits), 2);
}

TEST(DeviceFewSms, GiveTheReferenceForManyTokensAndTerms) {
  SHUNT_NEEDS_BULK_COPIES();
  const Topology topology = Topology::virtual_nodes(4, 2);
  const CaseLimits limits{.experts = 300, .topk = 32, .tokens = 900};
  run_all(topology, draw(topology, 6, {.hidden = 24, .dtype = bf16}, limits), 3);
  run_all(topology, draw(topology, 6, {.hidden = 520, .dtype = f16}, {.experts = 64, .topk = 8, .tokens = 300}), 5);
}

TEST(DeviceFewSms, GiveTheReferenceForMoreTermsThanAWarpHasLanes) {
  SHUNT_NEEDS_BULK_COPIES();
  const Topology topology = Topology::single_node(2);
  for (const std::int32_t topk : {33, Routing::kMaxTopK}) {
    const CaseLimits limits{.experts = 300, .topk = topk, .tokens = 20, .least_topk = topk};
    run_all(topology, draw(topology, 8, {.hidden = 64, .dtype = bf16}, limits), 2);
  }
}

TEST(DeviceFewSms, GiveTheSameBitsAThousandTimes) {
  SHUNT_NEEDS_BULK_COPIES();
  const Topology topology = Topology::single_node(4);
  const ShuffleCase drawn =
      draw(topology, 1, {.hidden = 1024, .dtype = bf16}, {.experts = 16, .topk = 8, .tokens = 16})[0];
  run_all(topology, {drawn}, 2, std::max<std::uint64_t>(share_of_cases(1000), 1));
}

TEST(DeviceFewSms, HaveABlockEachAndNoMore) {
  SHUNT_NEEDS_BULK_COPIES();
  constexpr std::int32_t kSms = 20;
  constexpr std::int64_t kTokens = 500;
  ASSERT_NO_THROW(kDeviceThreads.run(1, [&](World& world) {
    DeviceOptions device = small_device(kTokens);
    device.sms = kSms;
    Engine engine(world, kDeviceThreads.options({.hidden = 512}, device));
    const std::vector<std::int32_t> experts(kTokens, 0);
    const Plan plan = engine.plan({.experts = experts}, ExpertMap::contiguous(1, 1), {.max_rows = kTokens});
    const Tensor x = engine.allocate(bf16, kTokens, 512);
    const Tensor rows = engine.allocate(bf16, kTokens, 512);
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
  ASSERT_NO_THROW(kDeviceThreads.run(1, [](World& world) {
    DeviceOptions device = small_device();
    device.sms = 100'000;
    require_error([&] { const Engine engine(world, kDeviceThreads.options({.hidden = 8}, device)); },
                  ErrorCode::invalid_argument, "device.sms is 100000, expected 0 to");
  }));
}

TEST(DeviceFewSms, NeedADeviceWithBulkCopies) {
  SHUNT_NEEDS(kDeviceThreads);
  if (device::has_bulk_copies()) GTEST_SKIP() << "this one has them";
  ASSERT_NO_THROW(kDeviceThreads.run(1, [](World& world) {
    DeviceOptions device = small_device();
    device.sms = 1;
    require_error([&] { const Engine engine(world, kDeviceThreads.options({.hidden = 8}, device)); },
                  ErrorCode::unsupported, "has no bulk copies");
  }));
}

}  // namespace
}  // namespace shunt::test
