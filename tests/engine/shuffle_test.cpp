// Every operation, in every memory and over every transport, against the reference: bit for bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/rank_of_case.hpp"
#include "engine/steps.hpp"
#include "kernels/store.hpp"
#include "support/seeds.hpp"

namespace shunt::test {
namespace {

/// What a test runs where.
struct Setting {
  std::string name;
  Place place;
  std::uint64_t num_cases = 320;
  std::uint64_t first_world = 0;
  // Slices and rings between nodes that share no memory. The smallest make every segment straddle and every sender
  // wait. Batches are those of devices.
  std::int32_t slice_bytes = 128 << 10;
  std::int32_t ring_depth = 4;
  std::size_t batch_bytes = 16 << 10;
  std::int32_t num_batches = 4;
  CaseRun run = {};
};
void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

void run_all(const Setting& setting, const Topology& topology, const std::vector<ShuffleCase>& cases) {
  SpawnOptions options = setting.place.spawn(topology);
  options.environment.slice_bytes = setting.slice_bytes;
  options.environment.ring_depth = setting.ring_depth;
  DeviceOptions device = small_device();
  device.batch_bytes = setting.batch_bytes;
  device.num_batches = setting.num_batches;
  const auto run = [&](World& world) {
    for (const ShuffleCase& each : cases) run_case(world, setting.place, each, setting.run, device);
    world.barrier();
  };
  ASSERT_NO_THROW(World::spawn(topology.num_ranks(), run, options));
}
void run_all(const Place& place, const Topology& topology, const std::vector<ShuffleCase>& cases,
             const CaseRun& run = {}) {
  run_all({.name = place.name, .place = place, .run = run}, topology, cases);
}

class Shuffle : public ::testing::TestWithParam<Setting> {};

TEST_P(Shuffle, EqualsTheReferenceBitForBit) {
  SHUNT_NEEDS(GetParam().place);
  for (const auto& [topology, seeds] : choose_seeds(GetParam().first_world, GetParam().num_cases)) {
    std::vector<ShuffleCase> cases;
    for (const std::uint64_t seed : seeds) cases.push_back(random_shuffle_case(seed, topology));
    run_all(GetParam(), topology, cases);
  }
}

std::vector<Setting> shards(const Place& place, std::uint64_t count, std::uint64_t cases) {
  std::vector<Setting> all;
  for (std::uint64_t shard = 0; shard < count; ++shard)
    all.push_back({.name = fmt::format("{}{}", place.name, shard),
                   .place = place,
                   .num_cases = cases,
                   .first_world = shard * 1000});
  return all;
}

const auto kNameOfSetting = [](const auto& parameter) { return parameter.param.name; };
INSTANTIATE_TEST_SUITE_P(Host, Shuffle, ::testing::ValuesIn(shards(kHostThreads, 7, 320)), kNameOfSetting);
INSTANTIATE_TEST_SUITE_P(Device, Shuffle, ::testing::ValuesIn(shards(kDeviceThreads, 4, 160)), kNameOfSetting);
INSTANTIATE_TEST_SUITE_P(
    Processes, Shuffle,
    ::testing::Values(Setting{.name = "Host", .place = kHostProcesses},
                      Setting{.name = "Device", .place = kDeviceProcesses, .num_cases = 48, .first_world = 1}),
    kNameOfSetting);
Setting between_nodes(const char* name, const Place& place, std::uint64_t num_cases, std::int32_t slice_bytes,
                      std::int32_t ring_depth, std::size_t batch_bytes = 16 << 10, std::int32_t num_batches = 4) {
  return {.name = name,
          .place = place,
          .num_cases = num_cases,
          .slice_bytes = slice_bytes,
          .ring_depth = ring_depth,
          .batch_bytes = batch_bytes,
          .num_batches = num_batches};
}
INSTANTIATE_TEST_SUITE_P(Islands, Shuffle,
                         ::testing::Values(between_nodes("Host", kHostIslands, 320, 128 << 10, 4),
                                           between_nodes("HostSmallSlices", kHostIslands, 320, 4096, 2),
                                           between_nodes("HostOneSlice", kHostIslands, 320, 100, 1),
                                           between_nodes("HostBytes", kHostIslands, 40, 1, 3),
                                           between_nodes("Device", kDeviceIslands, 240, 128 << 10, 0, 1 << 20, 16),
                                           between_nodes("DeviceRowsStraddleSlices", kDeviceIslands, 64, 100, 2, 4096,
                                                         2),
                                           between_nodes("DeviceFewBytes", kDeviceIslands, 48, 7, 3, 256),
                                           between_nodes("DeviceOneBufferForAll", kDeviceIslands, 240, 1000, 1, 256, 1),
                                           between_nodes("DeviceSomeBuffers", kDeviceIslands, 240, 4096, 2, 1 << 14, 2),
                                           between_nodes("DeviceNcclLargeBatches", kDeviceNccl, 80, 100, 1, 1 << 20, 1),
                                           between_nodes("DeviceNcclSmallBatches", kDeviceNccl, 80, 100, 1, 256, 1)),
                         kNameOfSetting);
INSTANTIATE_TEST_SUITE_P(FewSms, Shuffle, ::testing::ValuesIn([] {
                           std::vector<Setting> settings;
                           for (const std::int32_t sms : {1, 3, 20}) {
                             Place place = kDeviceFewSms;
                             place.sms = sms;
                             settings.push_back({.name = fmt::format("Device{}", sms),
                                                 .place = place,
                                                 .num_cases = 120,
                                                 .first_world = 7000 + static_cast<std::uint64_t>(sms)});
                           }
                           return settings;
                         }()),
                         kNameOfSetting);

Setting with_pauses(const Place& place, std::uint64_t num_cases, std::int32_t slice_bytes = 128 << 10,
                    std::int32_t ring_depth = 4) {
  Setting setting = between_nodes(place.name, place, num_cases, slice_bytes, ring_depth);
  setting.run.most_pause_us = 2000;
  return setting;
}
INSTANTIATE_TEST_SUITE_P(LateRanks, Shuffle,
                         ::testing::Values(with_pauses(kHostIslands, 64, 500, 1), with_pauses(kHostThreads, 64),
                                           with_pauses(kHostProcesses, 64), with_pauses(kDeviceThreads, 32),
                                           with_pauses(kDeviceIslands, 32), with_pauses(kDeviceNccl, 32)),
                         kNameOfSetting);

using ShuffleAt = AtPlace;
INSTANTIATE_TEST_SUITE_P(At, ShuffleAt, kThreadPlaces, kNameOfPlace);
INSTANTIATE_TEST_SUITE_P(OnFewSms, ShuffleAt, ::testing::Values(kDeviceFewSms), kNameOfPlace);

TEST_P(ShuffleAt, EqualsTheReferenceOverManyTilesOfTokens) {
  const Topology topology = place().topology(3);
  const auto options = [](std::uint64_t seed) {
    return EngineOptions{.hidden = 24, .dtype = std::array{bf16, f32, fp8_e4m3}[seed % 3]};
  };
  const auto is_planned = [](const ShuffleCase& drawn) { return drawn.routing.options.layout != Layout::padded; };
  run_all(place(), topology,
          draw_cases(9, topology, options, CaseLimits{.experts = 300, .topk = 32, .tokens = 900}, is_planned));
}

TEST_P(ShuffleAt, ChoosesTheCopiesThatTheReferenceChooses) {
  const auto has_copies = [](const ShuffleCase& drawn) { return drawn.routing.map.has_replicas(); };
  for (const Topology& topology : {Topology::virtual_nodes(6, 3), Topology::single_node(4)})
    run_all(place(), topology,
            draw_cases(8, topology, random_engine_options, CaseLimits{.experts = 60, .topk = 8, .tokens = 200},
                       has_copies));
}

// Were copies chosen anew from what a capacity leaves of a token, some would be others.
TEST_P(ShuffleAt, DropsAfterCopiesAreChosen) {
  const Topology topology = Topology::virtual_nodes(6, 3);
  const auto drops = [](const ShuffleCase& drawn) {
    return drawn.routing.map.has_replicas() && drawn.routing.options.layout == Layout::token_unique &&
           std::ranges::any_of(drawn.expected.plans, [](const PlanData& plan) { return plan.num_dropped > 0; });
  };
  run_all(place(), topology,
          draw_cases(8, topology, random_engine_options, CaseLimits{.experts = 16, .topk = 8, .tokens = 30}, drops));
}

TEST_P(ShuffleAt, SumsMoreTermsThanAWarpHasLanes) {
  const Topology topology = place().topology(2);
  const auto options = [](std::uint64_t) { return EngineOptions{.hidden = 64, .dtype = bf16}; };
  for (const std::int32_t topk : {33, Routing::kMaxTopK})
    run_all(
        place(), topology,
        draw_cases(4, topology, options, CaseLimits{.experts = 300, .topk = topk, .tokens = 20, .least_topk = topk}));
}

// Blocks of as many threads as there can be, for devices; and rows that don't fit into shared memory.
TEST_P(ShuffleAt, CarriesTheLongestRows) {
  const Topology topology = place().topology(3);
  const auto options = [](std::uint64_t seed) {
    return EngineOptions{.hidden = (64 << 10) / 4 + 64,
                         .dtype = seed % 2 == 0 ? f32 : bf16,
                         .result_dtype = seed % 3 == 0 ? std::optional(f32) : std::nullopt};
  };
  run_all(place(), topology, draw_cases(6, topology, options, CaseLimits{.experts = 6, .topk = 3, .tokens = 6}));
}

// Rows that are larger than the cache are written past it.
TEST(LargeShuffle, EqualsTheReferenceBitForBit) {
  constexpr std::int64_t kRanks = 4, kRowFloats = 4096, kMostTokens = 4096;
  std::int64_t tokens = 16;
  const auto is_cached = [&] {
    return choose_store(static_cast<std::size_t>(kRanks * tokens * kRowFloats) * sizeof(float)) == Store::cached;
  };
  while (tokens < kMostTokens && is_cached()) tokens *= 2;
  if (is_cached()) GTEST_SKIP() << "this build or machine writes everything through the cache";
  const StepShape shape{.map = ExpertMap::contiguous(kRanks, kRanks),
                        .topk = 2,
                        .max_tokens = tokens,
                        .hidden = kRowFloats,
                        .layout = Layout::expert_major};
  run_all(kHostThreads, Topology::single_node(kRanks), {draw_step(1, shape, std::vector<std::int64_t>(kRanks, tokens))},
          {.repeats = 3});
}

TEST_P(ShuffleAt, WorksOnPartsOfAWorldAtTheSameTime) {
  const Topology topology = Topology::from_nodes({NodeId(0), NodeId(1), NodeId(0), NodeId(1), NodeId(1)});
  const std::vector<RankId> even = {RankId(0), RankId(2), RankId(4)};
  const std::vector<RankId> odd = {RankId(1), RankId(3)};
  std::vector<ShuffleCase> of_whole, of_even, of_odd;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    of_whole.push_back(random_shuffle_case(seed, topology));
    of_even.push_back(random_shuffle_case(seed, topology.subset(even)));
    of_odd.push_back(random_shuffle_case(seed, topology.subset(odd)));
  }
  const auto run_parts = [&](World& world) {
    const bool is_odd = world.rank().value % 2 == 1;
    {  // parts end while others go on
      World part = world.split(is_odd);
      for (const ShuffleCase& each : is_odd ? of_odd : of_even) run_case(part, place(), each);
    }
    for (const ShuffleCase& each : of_whole) run_case(world, place(), each);
    world.barrier();
  };
  EXPECT_NO_THROW(World::spawn(5, run_parts, place().spawn(topology)));
}

class ShuffleOfRanks : public ::testing::TestWithParam<std::tuple<Place, std::int32_t>> {};

TEST_P(ShuffleOfRanks, EqualsTheReferenceBitForBit) {
  const auto& [place, num_ranks] = GetParam();
  SHUNT_NEEDS(place);
  const Topology topology = place.topology(num_ranks);
  run_all(place, topology, draw_cases(12, topology));
}
INSTANTIATE_TEST_SUITE_P(Ranks, ShuffleOfRanks, ::testing::Combine(kThreadPlaces, ::testing::Values(1, 2, 4, 7, 8, 16)),
                         [](const auto& parameter) {
                           return fmt::format("{}{}", std::get<Place>(parameter.param).name,
                                              std::get<std::int32_t>(parameter.param));
                         });

class ShuffleRepeated : public ::testing::TestWithParam<std::tuple<Place, DType, Layout>> {};

TEST_P(ShuffleRepeated, GivesTheSameBits) {
  const auto& [place, dtype, layout] = GetParam();
  SHUNT_NEEDS(place);
  const Topology topology = place.topology(4);
  const auto options = [dtype = dtype](std::uint64_t) { return EngineOptions{.hidden = 264, .dtype = dtype}; };
  const auto suits = [layout = layout](const ShuffleCase& drawn) {  // fp8 is quantised, not copied
    return drawn.routing.options.layout == layout && drawn.x[0].dtype() != fp8_e4m3 &&
           drawn.expected.plans[0].num_tokens > 4;
  };
  const std::uint64_t repeats = place.is_device ? 1000 : 50;
  run_all(place, topology, draw_cases(1, topology, options, {}, suits),
          {.repeats = std::max<std::uint64_t>(share_of_cases(repeats), 1)});
}
INSTANTIATE_TEST_SUITE_P(Often, ShuffleRepeated,
                         ::testing::Combine(::testing::Values(kHostThreads, kDeviceThreads, kDeviceFewSms),
                                            ::testing::Values(f32, bf16, f16, fp8_e4m3),
                                            ::testing::Values(Layout::expert_major, Layout::token_unique,
                                                              Layout::padded)),
                         [](const auto& parameter) {
                           return fmt::format("{}_{}_{}", std::get<Place>(parameter.param).name,
                                              to_string(std::get<DType>(parameter.param)),
                                              to_string(std::get<Layout>(parameter.param)));
                         });

}  // namespace
}  // namespace shunt::test
