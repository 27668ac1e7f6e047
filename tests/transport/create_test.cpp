// World::create joins ranks over any bootstrap, and an error of one rank is thrown on all.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <latch>

#include "core/process_id.hpp"
#include "shunt/bootstrap.hpp"
#include "shunt/world.hpp"
#include "support/child_process.hpp"
#include "support/eventually.hpp"
#include "support/require.hpp"
#include "support/require_error.hpp"
#include "support/round_trip.hpp"
#include "support/traces.hpp"
#include "transport/bootstrap/rendezvous.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;

Environment with_limits() {
  Environment environment;
  environment.join = 10s;
  environment.liveness = 1s;
  return environment;
}

/// Runs the body on a thread per rank, each with its end, and throws what one of them throws.
void run(std::vector<std::unique_ptr<Bootstrap>> ends, const std::function<void(Bootstrap&)>& body) {
  std::vector<std::future<void>> running;
  for (auto& each : ends)
    running.push_back(std::async(std::launch::async, [&] {
      const auto own = std::move(each);
      body(*own);
    }));
  for (auto& each : running) each.get();
}

class CreateFromThreads : public LeavesNoTrace {};

TEST_F(CreateFromThreads, MakesAWorldThatShuffles) {
  for (const std::int32_t size : {1, 2, 4, 7})
    run(Bootstrap::threads(size), [](Bootstrap& bootstrap) {
      World world = World::create(bootstrap, {.environment = with_limits()});
      require(world.rank() == bootstrap.rank() && world.size() == bootstrap.size(), "ranks stay");
      for (std::uint32_t seed = 0; seed < 5; ++seed) round_trip(world, seed);
    });
}

/// World::create() throws such an error.
void require_create_error(Bootstrap& bootstrap, const WorldOptions& options, ErrorCode code, const std::string& words) {
  require_error([&] { (void)World::create(bootstrap, options); }, code, words);
}

TEST_F(CreateFromThreads, TakesTheNodesThatAreGivenAndRefusesOthersOnAllRanks) {
  run(Bootstrap::threads(4), [](Bootstrap& bootstrap) {
    World world = World::create(bootstrap, {.topology = Topology::virtual_nodes(4, 2), .environment = with_limits()});
    require(world.topology().num_nodes() == 2, "there are two nodes");
    round_trip(world);
  });
  run(Bootstrap::threads(4), [](Bootstrap& bootstrap) {
    const Topology topology = Topology::virtual_nodes(4, bootstrap.rank() == RankId(2) ? 4 : 2);
    require_create_error(bootstrap, {.topology = topology, .environment = with_limits()}, ErrorCode::mismatch,
                         "rank 2 on ");
  });
}

TEST_F(CreateFromThreads, ThrowsAnErrorOfOneRankOnAll) {
  run(Bootstrap::threads(3), [](Bootstrap& bootstrap) {
    Environment environment = with_limits();
    if (bootstrap.rank() == RankId(1)) environment.topology_file = "/no/such/nodes.json";
    const std::string text = fmt::format("rank 1 on {}: /no/such/nodes.json", host_name());
    require_create_error(bootstrap, {.environment = environment}, ErrorCode::invalid_argument, text);
  });
}

TEST_F(CreateFromThreads, NamesRanksThatDoNotCome) {
  std::latch late(2);
  run(Bootstrap::threads(4), [&](Bootstrap& bootstrap) {
    if (bootstrap.rank().value % 2 == 1) return late.wait();
    const std::shared_ptr<void> at_end(nullptr, [&](void*) { late.count_down(); });
    Environment environment = with_limits();
    environment.join = 200ms;
    require_create_error(bootstrap, {.environment = environment}, ErrorCode::deadline, "of 4 ranks: 1, 3");
  });
}

TEST_F(CreateFromThreads, NamesARankThatEnds) {
  run(Bootstrap::threads(3), [](Bootstrap& bootstrap) {
    if (bootstrap.rank() != RankId(1))
      require_create_error(bootstrap, {.environment = with_limits()}, ErrorCode::peer_lost, "rank 1 ended");
  });
}

class CreateFromACallback : public LeavesNoTrace {
 protected:
  /// A callback that gathers through a rendezvous of this test.
  std::unique_ptr<Bootstrap> bootstrap_over_callback(
      std::int32_t rank, std::int32_t size,
      const std::function<void(std::vector<std::byte>&)>& tamper = nullptr) const {
    std::shared_ptr<Bootstrap> rendezvous;
    const auto options = bootstrap::on_one_machine(RankId(rank), size, job_, 10s);
    return Bootstrap::callback(RankId(rank), size,
                               [=](std::span<const std::byte> mine, std::chrono::milliseconds limit) mutable {
                                 std::vector<std::byte> own(mine.begin(), mine.end());
                                 if (!rendezvous && tamper) tamper(own);
                                 if (!rendezvous) rendezvous = bootstrap::join_rendezvous(options);
                                 return rendezvous->all_gather(own, limit);
                               });
  }
  std::vector<std::unique_ptr<Bootstrap>> bootstraps_over_callbacks(std::int32_t first, std::int32_t last,
                                                                    std::int32_t size) const {
    std::vector<std::unique_ptr<Bootstrap>> ends;
    for (std::int32_t rank = first; rank <= last; ++rank) ends.push_back(bootstrap_over_callback(rank, size));
    return ends;
  }

  std::string job_ = fmt::format("shunt/create/{}", getpid());
};

TEST_F(CreateFromACallback, MakesAWorldOfThreadsOfSeveralProcesses) {
  std::vector<ChildProcess> processes;
  for (const std::int32_t first : {0, 2})
    processes.emplace_back([&, first] {
      run(bootstraps_over_callbacks(first, first + 1, 4), [](Bootstrap& bootstrap) {
        World world = World::create(bootstrap, {.environment = with_limits()});
        for (std::uint32_t seed = 0; seed < 5; ++seed) round_trip(world, seed);
      });
    });
  for (ChildProcess& process : processes) expect_returned(process);
}

// The bootstrap is gone when the world is rebuilt.
TEST_F(CreateFromACallback, MakesAWorldThatCanBeRebuilt) {
  SharedAcrossForks<std::atomic<int>> num_ready;
  std::vector<ChildProcess> ranks;
  for (std::int32_t rank = 0; rank < 4; ++rank)
    ranks.emplace_back([&, rank] {
      World world = World::create(*bootstrap_over_callback(rank, 4), {.environment = with_limits()});
      ++*num_ready;
      try {
        for (;;) round_trip(world);
      } catch (const Error&) {
      }
      auto [rebuilt, survivors] = world.rebuild();
      require(rebuilt.size() == 3, "three are left");
      round_trip(rebuilt);
    });
  EXPECT_TRUE(eventually([&] { return *num_ready == 4; }));
  ranks[1].kill(SIGKILL);
  for (const std::size_t rank : {0u, 2u, 3u}) expect_returned(ranks[rank]);
}

TEST_F(CreateFromACallback, RefusesAnotherBuildOnAllRanks) {
  auto ends = bootstraps_over_callbacks(0, 1, 3);
  ends.push_back(bootstrap_over_callback(2, 3, [](std::vector<std::byte>& bytes) {
    bytes.at(5) = std::byte{'9'};  // the first letter of the version
  }));
  run(std::move(ends), [](Bootstrap& bootstrap) {
    require_create_error(bootstrap, {.environment = with_limits()}, ErrorCode::mismatch, "runs shunt 9.1.0-");
  });
}

TEST_F(CreateFromACallback, RefusesTooFewContributions) {
  const auto alone = Bootstrap::callback(RankId(0), 2, [](std::span<const std::byte> mine, std::chrono::milliseconds) {
    return std::vector<Bootstrap::Bytes>{{mine.begin(), mine.end()}};
  });
  require_create_error(*alone, {.environment = with_limits()}, ErrorCode::mismatch,
                       "gathered the bytes of 1 ranks, not of 2");
}

TEST_F(CreateFromACallback, ThrowsWhatTheCallbackThrows) {
  const auto failing = Bootstrap::callback(RankId(0), 2, [](auto, auto) -> std::vector<Bootstrap::Bytes> {
    throw Error(ErrorCode::deadline, "the store has nothing of rank 1");
  });
  require_create_error(*failing, {.environment = with_limits()}, ErrorCode::deadline,
                       "the store has nothing of rank 1");
}

}  // namespace
}  // namespace shunt::test
