// Ranks that another launcher started find each other, or learn why not.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "support/child_process.hpp"
#include "support/require.hpp"
#include "support/require_error.hpp"
#include "support/round_trip.hpp"
#include "support/traces.hpp"
#include "transport/local/segment.hpp"
#include "transport/shm/join.hpp"
#include "transport/shm/socket.hpp"

namespace shunt::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class Join : public LeavesNoTrace {
 protected:
  /// A rank of this test's job, started as a launcher would do it.
  ChildProcess start(
      std::int32_t rank, std::int32_t size, int join_ms = 10'000,
      const std::function<void(World&)>& body = [](World& world) { round_trip(world); }) const {
    return ChildProcess([&] {
      setenv("SHUNT_RANK", std::to_string(rank).c_str(), 1);
      setenv("SHUNT_WORLD_SIZE", std::to_string(size).c_str(), 1);
      // Longer than a socket's name may be.
      setenv("SHUNT_JOB", fmt::format("{}-{}-{}", std::string(150, 'x'), getppid(), job_).c_str(), 1);
      setenv("SHUNT_JOIN_MS", std::to_string(join_ms).c_str(), 1);
      World world = World::from_environment();
      body(world);
    });
  }

  /// Where rank 0, which is being started, listens.
  [[nodiscard]] static std::string await_meeting_place(const ChildProcess& host) {
    const auto guard = std::chrono::steady_clock::now() + 20s;
    std::string place;
    while (place.empty() && std::chrono::steady_clock::now() < guard) {
      std::this_thread::sleep_for(1ms);
      place = meeting_place_of(host.pid());
    }
    return place;
  }

  static void expect_returned(ChildProcess& child) {
    const auto end = child.wait();
    ASSERT_TRUE(end) << "hangs";
    EXPECT_TRUE(end->returned) << end->error;
  }
  static void expect_error(ChildProcess& child, ErrorCode code, const std::string& words) {
    const auto end = child.wait();
    ASSERT_TRUE(end) << "hangs";
    EXPECT_EQ(to_string(end->code), to_string(code)) << end->error;
    EXPECT_THAT(end->error, HasSubstr(words));
  }

  std::int32_t job_ = 0;
};

TEST_F(Join, BringsRanksTogetherInWhateverOrderTheyCome) {
  for (const auto& order : {std::vector{0, 1, 2, 3}, std::vector{3, 1, 0, 2}}) {
    std::vector<ChildProcess> ranks;
    for (const int rank : order) {
      ranks.push_back(start(rank, 4));
      std::this_thread::sleep_for(20ms);
    }
    for (auto& rank : ranks) expect_returned(rank);
  }
}

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

TEST_F(Join, NamesTheMissingRanksToAllThatCame) {
  ChildProcess host = start(0, 4, 500);
  ChildProcess guest = start(2, 4, 500);
  expect_error(host, ErrorCode::deadline, "ranks: 1, 3");
  expect_error(guest, ErrorCode::deadline, "ranks: 1, 3");
}

TEST_F(Join, NamesAFewOfManyMissingRanks) {
  ChildProcess host = start(0, 4000, 100);
  expect_error(host, ErrorCode::deadline, "ranks: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 3983 more");
}

// Ranks of one host of a larger world are called what they are called there.
TEST_F(Join, NamesRanksAsTheLargerWorldDoes) {
  const auto join_as = [](std::int32_t rank, std::int32_t size) {
    return ChildProcess([=] {
      (void)shm::join({.rank = RankId(rank),
                       .size = size,
                       .job = fmt::format("named-{}", getppid()),
                       .names = {RankId(10), RankId(11), RankId(12)},
                       .join_limit = 500ms});
    });
  };
  ChildProcess lonely = join_as(1, 3);
  expect_error(lonely, ErrorCode::deadline, "rank 11 waited 500 ms in vain for rank 10 of 3");

  ChildProcess host = join_as(0, 3);
  ChildProcess guest = join_as(1, 3);
  for (ChildProcess* rank : {&host, &guest})
    expect_error(*rank, ErrorCode::deadline, "rank 10 waited 500 ms in vain for these of 3 ranks: 12");

  ChildProcess sound = join_as(0, 3);
  (void)await_meeting_place(sound);
  ChildProcess mistaken = join_as(1, 4);
  for (ChildProcess* rank : {&sound, &mistaken})
    expect_error(*rank, ErrorCode::mismatch, "rank 11 believes in 4 ranks, rank 10 in 3");
}

/// Says to rank 0 that it is this one of so many ranks.
Descriptor come_as_guest(const std::string& place, std::int32_t rank, std::int32_t size = 4) {
  const std::uint64_t job_hash = std::stoull(place.substr(place.find('/') + 1), nullptr, 16);
  const Segment segment = Segment::shareable(1 << 20, "guest");
  Descriptor guest = std::move(*shm::connect_to(place));
  require(shm::send_parcel(guest, {.job_hash = job_hash, .rank = rank, .size = size}, segment.fd()), "rank 0 listens");
  return guest;
}

std::vector<shm::ReceivedParcel> hear_all(const Descriptor& guest) {
  std::vector<shm::ReceivedParcel> words;
  while (auto word = shm::receive_parcel(guest, std::chrono::steady_clock::now() + 20s))
    words.push_back(std::move(*word));
  return words;
}

// Who begins watches the others, so all have to know all before.
TEST_F(Join, TellsGuestsToBeginWhenAllAreIntroduced) {
  ChildProcess host = start(0, 4);
  const std::string place = await_meeting_place(host);
  std::vector<Descriptor> guests;
  for (const std::int32_t rank : {1, 2, 3}) guests.push_back(come_as_guest(place, rank));
  for (const Descriptor& guest : guests) {
    const auto words = hear_all(guest);
    ASSERT_EQ(words.size(), 4u);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(words[i].first.valid() && words[i].second.valid());
    EXPECT_FALSE(words[3].first.valid());
    EXPECT_STREQ(words[3].parcel.refusal.data(), "");
  }
}

TEST_F(Join, TellsNobodyToBeginWhenARankEndsMeanwhile) {
  ChildProcess host = start(0, 4);
  const std::string place = await_meeting_place(host);
  std::vector<Descriptor> guests;
  for (const std::int32_t rank : {1, 2}) guests.push_back(come_as_guest(place, rank));
  host.stop();
  (void)come_as_guest(place, 3);
  host.kill(SIGCONT);
  for (const Descriptor& guest : guests) {
    const auto words = hear_all(guest);
    ASSERT_FALSE(words.empty());
    EXPECT_STREQ(words.back().parcel.refusal.data(), "rank 3 ended while the ranks were meeting");
  }
}

// However far they have come: one is known, one has spoken, one has only connected; and one is wrong.
TEST_F(Join, TellsWhyToAllThatHaveCome) {
  ChildProcess host = start(0, 5);
  const std::string place = await_meeting_place(host);
  std::vector<Descriptor> guests;
  guests.push_back(come_as_guest(place, 1, 5));
  std::this_thread::sleep_for(20ms);
  host.stop();
  const Descriptor mistaken = come_as_guest(place, 3, 4);
  guests.push_back(come_as_guest(place, 2, 5));
  guests.push_back(std::move(*shm::connect_to(place)));
  host.kill(SIGCONT);
  for (const Descriptor& guest : guests) {
    const auto words = hear_all(guest);
    ASSERT_EQ(words.size(), 1u);
    EXPECT_STREQ(words.front().parcel.refusal.data(), "rank 3 believes in 4 ranks, rank 0 in 5");
  }
}

TEST_F(Join, EndsWithAFaultOfTheLargerWorld) {
  for (const std::int32_t rank : {0, 1}) {
    std::atomic<bool> is_known = false;
    shm::JoinOptions options{.rank = RankId(rank), .size = 2, .job = fmt::format("larger-{}-{}", getpid(), rank)};
    options.fault = [&]() -> std::optional<Fault> {
      if (!is_known.exchange(true)) return std::nullopt;
      return Fault{ErrorCode::peer_lost, RankId(7), RankId(rank), "rank 7 ended"};
    };
    require_error([&] { (void)shm::join(options); }, ErrorCode::peer_lost, "rank 7 ended");
  }
}

TEST_F(Join, NamesAMissingRankZero) {
  ChildProcess guest = start(1, 2, 300);
  expect_error(guest, ErrorCode::deadline, "rank 0");
}

TEST_F(Join, NamesARankThatBelievesInAnotherSizeToAllThatCame) {
  ChildProcess host = start(0, 3);
  ChildProcess sound = start(1, 3);
  std::this_thread::sleep_for(100ms);
  ChildProcess mistaken = start(2, 4);
  for (ChildProcess* rank : {&host, &sound, &mistaken})
    expect_error(*rank, ErrorCode::mismatch, "rank 2 believes in 4 ranks, rank 0 in 3");
}

TEST_F(Join, NamesARankThatIsThereTwiceToAllThatCame) {
  ChildProcess host = start(0, 3);
  ChildProcess first = start(1, 3);
  std::this_thread::sleep_for(100ms);
  ChildProcess second = start(1, 3);
  for (ChildProcess* rank : {&host, &first, &second})
    expect_error(*rank, ErrorCode::mismatch, "a second process says that it is rank 1");
}

TEST_F(Join, TurnsASecondRankZeroAwayAndGoesOn) {
  ChildProcess host = start(0, 2);
  ASSERT_FALSE(await_meeting_place(host).empty());
  ChildProcess second = start(0, 2);
  expect_error(second, ErrorCode::system, "another world");
  ChildProcess guest = start(1, 2);
  expect_returned(host);
  expect_returned(guest);
}

TEST_F(Join, NamesARankThatDiesBeforeAllHaveCome) {
  ChildProcess host = start(0, 3);
  ChildProcess guest = start(1, 3);
  std::this_thread::sleep_for(300ms);
  guest.kill(SIGKILL);
  expect_error(host, ErrorCode::peer_lost, "rank 1 ended");
}

TEST_F(Join, TellsGuestsThatRankZeroDied) {
  ChildProcess host = start(0, 3);
  ChildProcess guest = start(1, 3);
  std::this_thread::sleep_for(300ms);
  host.kill(SIGKILL);
  expect_error(guest, ErrorCode::peer_lost, "rank 0 ended");
}

TEST_F(Join, IsNotDisturbedByStrangers) {
  ChildProcess host = start(0, 2);
  const std::string place = await_meeting_place(host);
  ASSERT_FALSE(place.empty());
  std::vector<Descriptor> strangers;
  for (const std::size_t bytes : {0, 1, 24, 512, 5000}) {
    strangers.push_back(std::move(*shm::connect_to(place)));
    const std::string garbage(bytes, '\xff');
    (void)!::send(strangers.back().get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
  }
  strangers.push_back(std::move(*shm::connect_to(place)));
  const shm::Parcel of_another_job{.job_hash = 1, .rank = 1, .size = 2};
  EXPECT_TRUE(shm::send_parcel(strangers.back(), of_another_job, STDOUT_FILENO, STDERR_FILENO));
  (void)shm::connect_to(place);  // and one that hangs up at once
  std::this_thread::sleep_for(100ms);
  ChildProcess guest = start(1, 2);
  expect_returned(host);
  expect_returned(guest);
}

TEST_F(Join, TellsTheOthersWhenAnExceptionDestroysARanksWorld) {
  const auto body = [](World& world) {
    if (world.rank() == RankId(1)) throw std::runtime_error("slipped");
    world.barrier();
  };
  ChildProcess patient = start(0, 2, 10'000, body);
  ChildProcess thrower = start(1, 2, 10'000, body);
  expect_error(patient, ErrorCode::peer_failed, "rank 1 left the world because of an exception");
  expect_error(thrower, ErrorCode::internal, "slipped");
}

TEST_F(Join, TellsTheOthersWhenARankIsKilled) {
  SharedAcrossForks<std::atomic<int>> num_joined;
  const auto body = [&](World& world) {
    ++*num_joined;
    if (world.rank() == RankId(1)) std::this_thread::sleep_for(60s);
    world.barrier();
  };
  ChildProcess patient = start(0, 2, 10'000, body);
  ChildProcess victim = start(1, 2, 10'000, body);
  const auto guard = std::chrono::steady_clock::now() + 20s;
  while (*num_joined < 2 && std::chrono::steady_clock::now() < guard) std::this_thread::sleep_for(1ms);
  victim.kill(SIGKILL);
  expect_error(patient, ErrorCode::peer_lost, "rank 1 ended");
}

}  // namespace
}  // namespace shunt::test
