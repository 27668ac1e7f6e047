// What World::spawn accepts, and which error it throws.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>

#include "shunt/error.hpp"
#include "shunt/world.hpp"
#include "support/require.hpp"

namespace shunt::test {
namespace {

using ::testing::HasSubstr;

/// Not a std::exception.
struct Peculiar {
  int value;
};

ErrorCode code_of_spawn(std::int32_t num_ranks, const SpawnOptions& options) {
  try {
    World::spawn(
        num_ranks, [](World&) {}, options);
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::internal;
}

TEST(Spawn, RefusesATopologyOfAnotherSizeAndAWorldOfNobody) {
  EXPECT_EQ(code_of_spawn(3, {.topology = Topology::single_node(4)}), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of_spawn(0, {}), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of_spawn(-1, {}), ErrorCode::invalid_argument);
}

TEST(Spawn, RefusesMoreRanksThanAnyHostHoldsBeforeItStartsOne) {
  for (const std::int32_t num_ranks : {Topology::kMaxRanksPerHost + 1, std::numeric_limits<std::int32_t>::max()})
    for (const WorldKind kind : {WorldKind::inproc, WorldKind::shm})
      EXPECT_EQ(code_of_spawn(num_ranks, {.kind = kind}), ErrorCode::invalid_argument);
}

TEST(Spawn, GivesEveryRankTheTopologyThatWasAskedFor) {
  World::spawn(4, [](World& world) { EXPECT_EQ(world.topology().hash(), Topology::virtual_nodes(4, 2).hash()); },
               {.topology = Topology::virtual_nodes(4, 2)});
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
  World::spawn(4, [](World& world) { EXPECT_EQ(world.topology().num_nodes(), 1); },
               {.topology = Topology::single_node(4), .environment = environment});
  EXPECT_EQ(code_of_spawn(3, {.environment = environment}), ErrorCode::invalid_argument);
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

TEST(Spawn, OfThreadsTellsEveryOtherRankWhoFailed) {
  std::array<std::string, 4> told;
  const auto body = [&](World& world) {
    try {
      if (world.rank() == RankId(2)) throw std::runtime_error("lost my way");
      world.barrier();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::peer_failed);
      told[world.rank().index()] = error.what();
      throw;
    }
  };
  EXPECT_THROW(World::spawn(4, body), std::runtime_error);
  for (const std::size_t rank : {0, 1, 3}) {
    EXPECT_THAT(told[rank], HasSubstr("rank 2"));
    EXPECT_THAT(told[rank], HasSubstr("lost my way"));
  }
}

TEST(Spawn, OfProcessesThrowsAnErrorWithTheTextOfTheFailingRank) {
  for (const std::int32_t num_ranks : {1, 2, 4, 7}) {
    const auto fail_last = [&](World& world) {
      if (world.rank().value == num_ranks - 1) throw std::out_of_range("one too far");
      world.barrier();
    };
    try {
      World::spawn(num_ranks, fail_last, {.kind = WorldKind::shm});
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::peer_failed);
      EXPECT_THAT(error.what(), HasSubstr("one too far"));
      EXPECT_THAT(error.what(), HasSubstr(fmt::format("rank {}", num_ranks - 1)));
    }
  }
}

TEST(Spawn, OfProcessesKeepsTheCodeOfAnError) {
  try {
    World::spawn(2, [](World&) { throw Error(ErrorCode::unsupported, "not here"); }, {.kind = WorldKind::shm});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_STREQ(error.what(), "not here");
  }
}

}  // namespace
}  // namespace shunt::test
