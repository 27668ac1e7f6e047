// World::create joins ranks by whatever exchanges their bytes, and what fails on one rank fails on all.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <future>
#include <thread>

#include "shunt/bootstrap.hpp"
#include "shunt/world.hpp"
#include "support/child_process.hpp"
#include "support/require.hpp"
#include "support/round_trip.hpp"
#include "support/traces.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

Environment with_limits() {
  Environment environment;
  environment.join = 10s;
  environment.liveness = 1s;
  return environment;
}

/// What a rank's call ended with; empty: it returned.
struct End {
  std::optional<ErrorCode> code;
  std::string text;
};

End end_of(const std::function<void()>& body) {
  try {
    body();
    return {};
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
}

void expect_error(const End& end, ErrorCode code, const std::string& words) {
  ASSERT_TRUE(end.code) << "returned, instead of: " << words;
  EXPECT_EQ(to_string(*end.code), to_string(code)) << end.text;
  EXPECT_THAT(end.text, HasSubstr(words));
}

class CreateFromThreads : public LeavesNoTrace {
 protected:
  /// Runs the body on a thread per rank.
  static std::vector<End> run(std::int32_t size, const std::function<void(Bootstrap&)>& body) {
    std::vector<std::future<End>> ranks;
    for (auto& each : Bootstrap::threads(size))
      ranks.push_back(std::async(std::launch::async, [&body, own = std::move(each)]() mutable {
        const End end = end_of([&] { body(*own); });
        own.reset();
        return end;
      }));
    std::vector<End> ends;
    for (auto& rank : ranks) ends.push_back(rank.get());
    return ends;
  }
};

TEST_F(CreateFromThreads, MakesAWorldThatShuffles) {
  for (const std::int32_t size : {1, 2, 4, 7})
    for (const End& end : run(size, [](Bootstrap& bootstrap) {
           World world = World::create(bootstrap, {.environment = with_limits()});
           require(world.rank() == bootstrap.rank() && world.size() == bootstrap.size(), "ranks stay");
           for (std::uint32_t seed = 0; seed < 5; ++seed) round_trip(world, {}, seed);
         }))
      EXPECT_FALSE(end.code) << end.text;
}

TEST_F(CreateFromThreads, TakesTheNodesThatAreGiven) {
  for (const End& end : run(4, [](Bootstrap& bootstrap) {
         World world =
             World::create(bootstrap, {.topology = Topology::virtual_nodes(4, 2), .environment = with_limits()});
         require(world.topology().num_nodes() == 2, "there are two nodes");
         round_trip(world);
       }))
    EXPECT_FALSE(end.code) << end.text;
}

TEST_F(CreateFromThreads, RefusesOtherNodesOnAllRanks) {
  for (const End& end : run(4, [](Bootstrap& bootstrap) {
         const std::int32_t num_nodes = bootstrap.rank() == RankId(2) ? 4 : 2;
         (void)World::create(bootstrap,
                             {.topology = Topology::virtual_nodes(4, num_nodes), .environment = with_limits()});
       }))
    expect_error(end, ErrorCode::mismatch, "rank 2 on ");
}

TEST_F(CreateFromThreads, ThrowsOnAllRanksWhatOneCantRead) {
  for (const End& end : run(3, [](Bootstrap& bootstrap) {
         Environment environment = with_limits();
         if (bootstrap.rank() == RankId(1)) environment.topology_file = "/no/such/nodes.json";
         (void)World::create(bootstrap, {.environment = environment});
       })) {
    expect_error(end, ErrorCode::invalid_argument, "/no/such/nodes.json");
    EXPECT_THAT(end.text, HasSubstr("rank 1 on "));
  }
}

TEST_F(CreateFromThreads, NamesWhoDoesNotCome) {
  const auto ends = run(4, [](Bootstrap& bootstrap) {
    Environment environment = with_limits();
    environment.join = 200ms;
    if (bootstrap.rank() == RankId(1) || bootstrap.rank() == RankId(3))
      std::this_thread::sleep_for(4s);
    else
      (void)World::create(bootstrap, {.environment = environment});
  });
  for (const std::size_t rank : {0u, 2u}) expect_error(ends[rank], ErrorCode::deadline, "of 4 ranks: 1, 3");
}

TEST_F(CreateFromThreads, NamesWhoEnds) {
  const auto ends = run(3, [](Bootstrap& bootstrap) {
    if (bootstrap.rank() != RankId(1)) (void)World::create(bootstrap, {.environment = with_limits()});
  });
  for (const std::size_t rank : {0u, 2u}) expect_error(ends[rank], ErrorCode::peer_lost, "rank 1 ended");
}

/// What ranks that are processes, or threads of some, leave for each other, as in a store that they share.
struct Store {
  static constexpr std::size_t kMostRanks = 4, kMostRounds = 8, kMostBytes = 4096;
  struct Entry {
    std::atomic<std::int64_t> num_bytes;  // and one; released after the bytes, acquired before they are read
    std::array<std::byte, kMostBytes> bytes;
  };
  std::array<std::array<Entry, kMostRanks>, kMostRounds> rounds;
};

std::unique_ptr<Bootstrap> bootstrap_over(
    Store& store, std::int32_t rank, std::int32_t size,
    const std::function<void(std::size_t round, std::vector<std::byte>&)>& tamper = nullptr) {
  return Bootstrap::callback(RankId(rank), size,
                             [&store, rank, size, tamper, round = std::size_t{0}](
                                 std::span<const std::byte> mine, std::chrono::milliseconds limit) mutable {
                               std::vector<std::byte> own(mine.begin(), mine.end());
                               if (tamper) tamper(round, own);
                               auto& entries = store.rounds.at(round++);
                               std::copy(own.begin(), own.end(), entries.at(RankId(rank).index()).bytes.begin());
                               entries[RankId(rank).index()].num_bytes = static_cast<std::int64_t>(own.size()) + 1;
                               std::vector<std::vector<std::byte>> all;
                               const auto deadline = std::chrono::steady_clock::now() + limit;
                               for (std::size_t peer = 0; peer < RankId(size).index(); ++peer) {
                                 while (entries[peer].num_bytes == 0) {
                                   if (std::chrono::steady_clock::now() > deadline)
                                     throw Error(ErrorCode::deadline,
                                                 fmt::format("the store has nothing of rank {}", peer));
                                   std::this_thread::sleep_for(1ms);
                                 }
                                 const auto begin = entries[peer].bytes.begin();
                                 all.emplace_back(begin, begin + entries[peer].num_bytes - 1);
                               }
                               return all;
                             });
}

class CreateFromACallback : public LeavesNoTrace {
 protected:
  SharedAcrossForks<Store> store_;
};

void expect_returned(std::vector<ChildProcess>& children) {
  for (ChildProcess& child : children) {
    const auto end = child.wait();
    ASSERT_TRUE(end) << "hangs";
    EXPECT_TRUE(end->returned) << end->error;
  }
}

TEST_F(CreateFromACallback, MakesAWorldOfProcesses) {
  std::vector<ChildProcess> ranks;
  for (std::int32_t rank = 0; rank < 4; ++rank)
    ranks.emplace_back([&, rank] {
      const auto bootstrap = bootstrap_over(*store_, rank, 4);
      World world = World::create(*bootstrap, {.environment = with_limits()});
      for (std::uint32_t seed = 0; seed < 5; ++seed) round_trip(world, {}, seed);
    });
  expect_returned(ranks);
}

TEST_F(CreateFromACallback, MakesAWorldOfThreadsOfSeveralProcesses) {
  std::vector<ChildProcess> processes;
  for (const std::int32_t first : {0, 2})
    processes.emplace_back([&, first] {
      std::vector<std::future<void>> ranks;
      for (const std::int32_t rank : {first, first + 1})
        ranks.push_back(std::async(std::launch::async, [&, rank] {
          const auto bootstrap = bootstrap_over(*store_, rank, 4);
          World world = World::create(*bootstrap, {.environment = with_limits()});
          for (std::uint32_t seed = 0; seed < 5; ++seed) round_trip(world, {}, seed);
        }));
      for (auto& rank : ranks) rank.get();
    });
  expect_returned(processes);
}

// The bootstrap is gone when the world is rebuilt.
TEST_F(CreateFromACallback, MakesAWorldThatCanBeRebuilt) {
  SharedAcrossForks<std::atomic<int>> num_ready;
  std::vector<ChildProcess> ranks;
  for (std::int32_t rank = 0; rank < 4; ++rank)
    ranks.emplace_back([&, rank] {
      World world = World::create(*bootstrap_over(*store_, rank, 4), {.environment = with_limits()});
      ++*num_ready;
      try {
        for (;;) round_trip(world);
      } catch (const Error&) {
      }
      auto [rebuilt, survivors] = world.rebuild();
      require(rebuilt.size() == 3, "three are left");
      round_trip(rebuilt);
    });
  const auto guard = std::chrono::steady_clock::now() + 20s;
  while (*num_ready < 4 && std::chrono::steady_clock::now() < guard) std::this_thread::sleep_for(1ms);
  ranks[1].kill(SIGKILL);
  for (const std::size_t rank : {0u, 2u, 3u}) {
    const auto end = ranks[rank].wait();
    ASSERT_TRUE(end) << "hangs";
    EXPECT_TRUE(end->returned) << end->error;
  }
}

TEST_F(CreateFromACallback, RefusesAnotherBuildOnAllRanks) {
  const auto other_build = [](std::size_t round, std::vector<std::byte>& bytes) {
    if (round == 0) bytes.at(5) = std::byte{'9'};  // the first letter of the version
  };
  std::vector<std::future<End>> ranks;
  for (const std::int32_t rank : {0, 1, 2})
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      const auto bootstrap =
          rank == 2 ? bootstrap_over(*store_, rank, 3, other_build) : bootstrap_over(*store_, rank, 3);
      return end_of([&] { (void)World::create(*bootstrap, {.environment = with_limits()}); });
    }));
  for (auto& rank : ranks) expect_error(rank.get(), ErrorCode::mismatch, "runs shunt 9.1.0-");
}

TEST_F(CreateFromACallback, SaysThatItGotTooFew) {
  const auto alone = Bootstrap::callback(RankId(0), 2, [](std::span<const std::byte> mine, std::chrono::milliseconds) {
    return std::vector<Bootstrap::Bytes>{{mine.begin(), mine.end()}};
  });
  expect_error(end_of([&] { (void)World::create(*alone, {.environment = with_limits()}); }), ErrorCode::mismatch,
               "returned the bytes of 1 ranks, not of 2");
}

TEST_F(CreateFromACallback, ThrowsWhatTheCallbackThrows) {
  Environment hurried = with_limits();
  hurried.join = 100ms;
  expect_error(end_of([&] { (void)World::create(*bootstrap_over(*store_, 0, 2), {.environment = hurried}); }),
               ErrorCode::deadline, "the store has nothing of rank 1");
}

}  // namespace
}  // namespace shunt::test
