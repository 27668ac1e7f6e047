// Worlds of threads and of processes: what World::spawn accepts and throws, collectives, splitting, lifetimes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <vector>

#include "shunt/engine.hpp"
#include "shunt/error.hpp"
#include "shunt/world.hpp"
#include "support/child_process.hpp"
#include "support/require.hpp"
#include "support/require_error.hpp"
#include "support/round_trip.hpp"

namespace shunt::test {
namespace {

/// Not a std::exception.
struct Peculiar {
  int value;
};

void expect_refused(std::int32_t num_ranks, const SpawnOptions& options) {
  require_error(
      [&] {
        World::spawn(
            num_ranks, [](World&) {}, options);
      },
      ErrorCode::invalid_argument, "");
}

TEST(Spawn, RefusesATopologyOfAnotherSizeAndAWorldWithoutRanks) {
  expect_refused(3, {.topology = Topology::single_node(4)});
  expect_refused(0, {});
  expect_refused(-1, {});
}

TEST(Spawn, RefusesMoreRanksThanAnyHostHoldsBeforeItStartsOne) {
  for (const std::int32_t num_ranks : {Topology::kMaxRanksPerHost + 1, std::numeric_limits<std::int32_t>::max()})
    for (const WorldKind kind : {WorldKind::inproc, WorldKind::shm}) expect_refused(num_ranks, {.kind = kind});
}

TEST(Spawn, EndsARankThatStaysStoppedWhenTheOthersHaveReturned) {
  Environment environment = Environment::read();
  environment.liveness = std::chrono::milliseconds(300);
  require_error(
      [&] {
        World::spawn(2, [](World& world) { world.rank().value == 1 ? (void)raise(SIGSTOP) : (void)0; },
                     {.kind = WorldKind::shm, .environment = environment});
      },
      ErrorCode::peer_lost, "rank 1 was stopped");
}

TEST(Spawn, GivesEveryRankTheTopologyOfTheFileUnlessAnotherWasAskedFor) {
  const std::string path = testing::TempDir() + "spawn_test_nodes.json";
  std::ofstream(path) << R"({"nodes": [[0, 2], [1, 3]]})";
  Environment environment = Environment::read();
  environment.topology_file = path;
  const Topology of_file = Topology::from_file(path);
  for (const WorldKind kind : {WorldKind::inproc, WorldKind::shm, WorldKind::islands})
    World::spawn(4, [&](World& world) { require(world.topology().hash() == of_file.hash(), "other nodes"); },
                 {.kind = kind, .environment = environment});
  const Topology other = Topology::virtual_nodes(4, 4);
  World::spawn(4, [&](World& world) { EXPECT_EQ(world.topology().hash(), other.hash()); },
               {.topology = other, .environment = environment});
  expect_refused(3, {.environment = environment});
  std::filesystem::remove(path);
}

TEST(Spawn, OfThreadsRethrowsWhatTheFailingRankThrew) {
  for (const std::int32_t num_ranks : {1, 2, 4, 7}) {
    const auto fail_last = [&](World& world) {
      if (world.rank().value == num_ranks - 1) throw std::out_of_range("one too far");
      world.barrier();
    };
    EXPECT_THROW(World::spawn(num_ranks, fail_last), std::out_of_range);
    const auto fail_peculiarly = [&](World& world) {
      if (world.rank().value == 0) throw Peculiar{42};
      world.barrier();
    };
    EXPECT_THROW(World::spawn(num_ranks, fail_peculiarly), Peculiar);
  }
}

TEST(Spawn, OfProcessesKeepsTheCodeOfAnError) {
  const auto fail = [](World&) { throw Error(ErrorCode::unsupported, "not here"); };
  for (const std::int32_t num_ranks : {1, 2, 4, 7})
    require_error([&] { World::spawn(num_ranks, fail, {.kind = WorldKind::shm}); }, ErrorCode::unsupported, "not here");
}

class WorldTest : public ::testing::TestWithParam<std::tuple<WorldKind, std::int32_t>> {
 protected:
  [[nodiscard]] WorldKind kind() const { return std::get<0>(GetParam()); }
  [[nodiscard]] std::int32_t num_ranks() const { return std::get<1>(GetParam()); }
  void spawn(const std::function<void(World&)>& body) const { World::spawn(num_ranks(), body, {.kind = kind()}); }
};

INSTANTIATE_TEST_SUITE_P(Kinds, WorldTest,
                         ::testing::Combine(::testing::Values(WorldKind::inproc, WorldKind::shm),
                                            ::testing::Values(1, 2, 4, 7)),
                         [](const auto& of) {
                           return fmt::format("{}_{}", to_string(std::get<0>(of.param)), std::get<1>(of.param));
                         });

TEST_P(WorldTest, ABarrierReturnsOnlyOnceAllRanksHaveCalledIt) {
  SharedAcrossForks<std::atomic<int>> num_calls;
  spawn([&](World& world) {
    for (int round = 1; round <= 50; ++round) {
      ++*num_calls;
      world.barrier();
      require(*num_calls >= round * world.size(), "all ranks have called this round's barrier");
    }
  });
}

TEST_P(WorldTest, AllGatherBringsEveryRanksBytesWhateverTheirLength) {
  spawn([](World& world) {
    for (const std::size_t unit : {std::size_t{0}, std::size_t{1}, std::size_t{37}, std::size_t{100'000}}) {
      const auto bytes_of = [&](std::size_t rank) {
        return std::vector<std::byte>(rank * unit, static_cast<std::byte>(rank + unit));
      };
      const auto all = world.all_gather(bytes_of(world.rank().index()));
      require(all.size() == static_cast<std::size_t>(world.size()), "there is one entry per rank");
      for (std::size_t rank = 0; rank < all.size(); ++rank)
        require(all[rank] == bytes_of(rank), "the bytes are theirs");
    }
  });
}

TEST_P(WorldTest, SplitsIntoWorldsThatWorkSideBySideWithTheirParent) {
  spawn([](World& world) {
    World half = world.split(world.rank().value % 2);
    require(half.size() == (world.size() + 1 - world.rank().value % 2) / 2, "equal colours form a world");
    require(half.rank().value == world.rank().value / 2, "in the order of their ranks");
    World alone = half.split(half.rank().value);
    require(alone.size() == 1, "a rank may be alone");
    // The order between worlds is free, also when it differs between ranks.
    for (std::uint32_t seed = 0; seed < 5; ++seed) {
      round_trip(half, seed);
      round_trip(alone, seed);
      round_trip(world, seed);
      half.barrier();
    }
  });
}

// The thread that drives operations in the background may be the one that frees the last block.
TEST_P(WorldTest, MayEndRightAfterItsLastOperation) {
  for (int i = 0; i < 20; ++i)
    spawn([](World& world) {
      Engine engine(world, {.hidden = 8, .dtype = f32});
      const std::vector<std::int32_t> experts = {0};
      const Plan plan = engine.plan({experts, {}, 1}, ExpertMap::contiguous(world.size(), world.size()));
      const std::vector<float> x(8, 1.0f);
      (void)engine.dispatch(plan, borrow(x.data(), f32, 1, 8));
    });
}

TEST(World, OfOtherThreadsDoesNotDisturb) {
  std::vector<std::jthread> launchers;
  for (std::int32_t num_ranks = 1; num_ranks <= 3; ++num_ranks)
    launchers.emplace_back([num_ranks] {
      for (std::uint32_t seed = 0; seed < 5; ++seed)
        World::spawn(num_ranks, [&](World& world) { round_trip(world, seed); });
    });
}

TEST(World, WithoutALauncherHasOneRank) {
  World world = World::from_environment();
  World second = World::from_environment();
  EXPECT_EQ(world.size(), 1);
  world.barrier();
  round_trip(world);
  round_trip(second);
}

}  // namespace
}  // namespace shunt::test
