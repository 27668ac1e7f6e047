// Ranks that another launcher started join, or throw what went wrong. rendezvous_test has more of the errors.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <vector>

#include "support/child_process.hpp"
#include "support/launched_rank.hpp"
#include "support/round_trip.hpp"
#include "support/traces.hpp"

namespace shunt::test {
namespace {

class Join : public LeavesNoTrace {
 protected:
  /// A rank of this test's job, started as a launcher would do it.
  ChildProcess start(
      std::int32_t rank, std::int32_t size, int join_ms = 10'000,
      const std::function<void(World&)>& body = [](World& world) { round_trip(world); }) const {
    // A name that is longer than a socket's may be.
    return start_rank({rank, size, fmt::format("{}-{}", std::string(150, 'x'), job_), join_ms}, body);
  }

  std::int32_t job_ = 0;
};

TEST_F(Join, NeedsNoMoreDescriptorsInFlightThanAnOrdinaryUserMayHave) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  constexpr std::int32_t kNumRanks = 24;
  ChildProcess user([] {
    const rlimit fewer_than_the_ranks_exchange{160, 160};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &fewer_than_the_ranks_exchange), 0);
    ASSERT_EQ(setresuid(65534, 65534, 65534), 0);
    World::spawn(kNumRanks, [](World& world) { world.barrier(); }, {.kind = WorldKind::shm});
  });
  expect_returned(user);
}

TEST_F(Join, LetsAJobMakeOneWorldAfterAnother) {
  const auto make_another = [](World& world) {
    World second = World::from_environment();
    round_trip(second);
    round_trip(world);
  };
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.push_back(start(rank, 3, 10'000, make_another));
  for (auto& rank : ranks) expect_returned(rank);
}

TEST_F(Join, KeepsJobsApartWhoseLongNamesDifferAtTheEnd) {
  std::vector<ChildProcess> ranks;
  for (const int rank : {0, 1})
    for (job_ = 0; job_ < 3; ++job_) ranks.push_back(start(rank, 2));
  for (auto& rank : ranks) expect_returned(rank);
}

TEST_F(Join, NamesTheMissingRanksAfterTheLimitToAllThatCame) {
  ChildProcess coordinator = start(0, 4, 500);
  ChildProcess participant = start(2, 4, 500);
  for (ChildProcess* rank : {&coordinator, &participant}) expect_error(*rank, ErrorCode::deadline, "ranks: 1, 3");
}

TEST_F(Join, ReportsARankWhoseWorldIsDestroyedByAnException) {
  const auto body = [](World& world) {
    if (world.rank() == RankId(1)) throw std::runtime_error("slipped");
    world.barrier();
  };
  ChildProcess witness = start(0, 2, 10'000, body);
  ChildProcess thrower = start(1, 2, 10'000, body);
  expect_error(witness, ErrorCode::peer_failed, "rank 1 left the world because of an exception");
  expect_error(thrower, ErrorCode::internal, "slipped");
}

}  // namespace
}  // namespace shunt::test
