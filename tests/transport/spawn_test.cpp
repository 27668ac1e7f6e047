// What World::spawn accepts, and which error it throws.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>

#include "shunt/error.hpp"
#include "shunt/world.hpp"
#include "support/require.hpp"
#include "support/require_error.hpp"

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

}  // namespace
}  // namespace shunt::test
