// Every operation, over every transport, against the reference: bit for bit.
#include <gtest/gtest.h>

#include "engine/rank_of_case.hpp"
#include "support/seeds.hpp"

namespace shunt::test {
namespace {

constexpr std::uint64_t kCasesPerShard = 320;

/// Slices and rings of nodes that share no memory. The smallest make every segment straddle and every stream wait.
struct Slices {
  std::int32_t bytes = 128 << 10;
  std::int32_t depth = 4;
};

SpawnOptions options_for(WorldKind kind, const Topology& topology, const Slices& slices = {}) {
  SpawnOptions options{.kind = kind, .topology = topology};
  options.environment.slice_bytes = slices.bytes;
  options.environment.ring_depth = slices.depth;
  options.environment.deadline = std::chrono::seconds(20);  // a case that hangs says so, and names its seed
  return options;
}

void expect_as_reference(WorldKind kind, const std::vector<SeedsOfWorld>& worlds, std::int32_t most_pause_us = 0,
                         const Slices& slices = {}) {
  for (const auto& [topology, seeds] : worlds) {
    std::vector<ShuffleCase> cases;
    for (const std::uint64_t seed : seeds) cases.push_back(random_shuffle_case(seed, topology));
    const auto run_all = [&](World& world) {
      for (const ShuffleCase& each : cases) run_case(world, each, most_pause_us);
    };
    ASSERT_NO_THROW(World::spawn(topology.num_ranks(), run_all, options_for(kind, topology, slices)));
  }
}

class ShuffleShard : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(ShuffleShard, EqualsTheReferenceBitForBit) {
  expect_as_reference(WorldKind::inproc, choose_seeds(GetParam() * 1000, kCasesPerShard));
}
INSTANTIATE_TEST_SUITE_P(Inproc, ShuffleShard, ::testing::Range<std::uint64_t>(0, 7));

TEST(Shuffle, GivesTheSameBitsBetweenProcesses) {
  expect_as_reference(WorldKind::shm, choose_seeds(0, kCasesPerShard));
}

class ShuffleBetweenIslands : public ::testing::TestWithParam<Slices> {};

TEST_P(ShuffleBetweenIslands, EqualsTheReferenceBitForBit) {
  const bool is_slow = GetParam().bytes == 1;
  expect_as_reference(WorldKind::islands, choose_seeds(0, is_slow ? 40 : kCasesPerShard), 0, GetParam());
}
INSTANTIATE_TEST_SUITE_P(Islands, ShuffleBetweenIslands,
                         ::testing::Values(Slices{}, Slices{.bytes = 4096, .depth = 2},
                                           Slices{.bytes = 100, .depth = 1}, Slices{.bytes = 1, .depth = 3}));

TEST(Shuffle, GivesTheSameBitsWhoeverIsLate) {
  expect_as_reference(WorldKind::islands, choose_seeds(0, 64), 2000, {.bytes = 500, .depth = 1});
  expect_as_reference(WorldKind::inproc, choose_seeds(0, 64), 2000);
  expect_as_reference(WorldKind::shm, choose_seeds(0, 64), 2000);
}

TEST(Shuffle, GivesTheSameBitsWhenRepeated) {
  const Topology topology = Topology::virtual_nodes(4, 2);
  const ShuffleCase one = random_shuffle_case(1, topology);
  const auto repeat = [&](World& world) {
    for (int i = 0; i < 50; ++i) run_case(world, one);
  };
  EXPECT_NO_THROW(World::spawn(4, repeat, options_for(WorldKind::inproc, topology)));
}

TEST(Shuffle, WorksOnPartsOfAWorldAtTheSameTime) {
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
    World part = world.split(is_odd);
    for (const ShuffleCase& each : is_odd ? of_odd : of_even) run_case(part, each);
    for (const ShuffleCase& each : of_whole) run_case(world, each);
  };
  EXPECT_NO_THROW(World::spawn(5, run_parts, options_for(WorldKind::inproc, topology)));
}

}  // namespace
}  // namespace shunt::test
