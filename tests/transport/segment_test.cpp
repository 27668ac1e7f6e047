// A rank's segment, and the pool that hands out its memory.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "shunt/error.hpp"
#include "support/require_error.hpp"
#include "transport/local/pool.hpp"
#include "transport/local/segment.hpp"
#include "transport/wait_ready.hpp"

namespace shunt::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::size_t file_bytes(const Segment& segment) {
  struct stat status {};
  fstat(segment.fd(), &status);
  return static_cast<std::size_t>(status.st_blocks) * 512;
}

/// Pages of the first `bytes` that are in memory.
std::size_t resident_bytes(const Segment& segment, std::size_t bytes) {
  std::vector<unsigned char> pages(bytes / 4096);
  mincore(segment.base(), bytes, pages.data());
  return static_cast<std::size_t>(std::count_if(pages.begin(), pages.end(), [](auto page) { return page & 1; })) * 4096;
}

TEST(Segment, CantBeResizedByAPeer) {
  const Segment segment = Segment::shareable(kMiB, "segment-test");
  EXPECT_NE(ftruncate(segment.fd(), 4096), 0);
  EXPECT_NE(ftruncate(segment.fd(), 2 * kMiB), 0);
}

TEST(Segment, ShowsTheSameBytesToAProcessThatAttachesIt) {
  Segment segment = Segment::shareable(kMiB, "segment-test");
  segment.commit(0, kMiB);
  const Segment attached = Segment::attach(Descriptor(dup(segment.fd())));
  ASSERT_EQ(attached.bytes(), segment.bytes());
  std::memset(segment.base(), 5, kMiB);
  EXPECT_TRUE(std::all_of(attached.base(), attached.base() + kMiB, [](std::byte b) { return b == std::byte{5}; }));
}

TEST(Segment, AttachRefusesWhatAPeerCouldShorten) {
  for (const int fd : {memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING), fileno(std::tmpfile())})
    require_error([&] { (void)Segment::attach(Descriptor(fd)); }, ErrorCode::mismatch, "not a sealed memfd");
}

TEST(Segment, CostsNothingUntilCommittedAndGivesEverythingBack) {
  Segment segment = Segment::shareable(std::size_t{16} << 30, "segment-test");
  EXPECT_EQ(file_bytes(segment), 0u);
  segment.commit(kMiB, 10 * kMiB);
  EXPECT_EQ(file_bytes(segment), 10 * kMiB);
  segment.decommit(2 * kMiB, kMiB);
  EXPECT_EQ(file_bytes(segment), 9 * kMiB);
  segment.decommit(kMiB, 10 * kMiB);
  EXPECT_EQ(file_bytes(segment), 0u);
}

TEST(Segment, OfThreadsGivesEverythingBack) {
  Segment segment = Segment::anonymous(512 * kMiB);
  EXPECT_EQ(resident_bytes(segment, 512 * kMiB), 0u);
  segment.commit(0, 128 * kMiB);
  std::memset(segment.base(), 1, 128 * kMiB);
  EXPECT_GE(resident_bytes(segment, 512 * kMiB), 128 * kMiB);
  segment.decommit(0, 128 * kMiB);
  EXPECT_EQ(resident_bytes(segment, 512 * kMiB), 0u);
  EXPECT_EQ(segment.base()[0], std::byte{0});
}

TEST(Segment, LeavesHalfOfALimitedAddressSpaceToTheProgram) {
  EXPECT_EXIT(
      {
        rlimit limit{};
        limit.rlim_cur = limit.rlim_max = 8192 * kMiB;
        setrlimit(RLIMIT_AS, &limit);
        _exit(Segment::default_bytes(4) == 1024 * kMiB ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(Segment, IsNeverAStandardStreamOfAProgramThatClosedThem) {
  EXPECT_EXIT(
      {
        for (const int standard : {0, 1, 2}) close(standard);
        const Segment segment = Segment::shareable(kMiB, "segment-test");
        const Wake wake;
        _exit(segment.fd() > 2 && wake.fd() > 2 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(Segment, CommitSucceedsUnderAStormOfSignals) {
  struct sigaction previous {};
  struct sigaction ignore {};
  ignore.sa_handler = [](int) {};  // without SA_RESTART, as a profiler may do it
  sigaction(SIGALRM, &ignore, &previous);
  const itimerval storm = {{0, 1000}, {0, 1000}};
  const itimerval calm = {};
  setitimer(ITIMER_REAL, &storm, nullptr);
  Segment segment = Segment::shareable(512 * kMiB, "segment-test");
  EXPECT_NO_THROW(segment.commit(0, 512 * kMiB));
  setitimer(ITIMER_REAL, &calm, nullptr);
  sigaction(SIGALRM, &previous, nullptr);
  EXPECT_EQ(file_bytes(segment), 512 * kMiB);
}

constexpr std::size_t kSegmentBytes = 2048 * kMiB;
constexpr std::size_t kControlBytes = 10'000;

/// Mostly small blocks, some that strain the reserve.
std::size_t random_bytes(std::mt19937_64& random) {
  const std::size_t most = std::size_t{2} << (random() % 26);
  return random() % (most + 1);
}

class PoolTest : public ::testing::Test {
 protected:
  Segment segment = Segment::shareable(kSegmentBytes, "pool-test");
  Pool pool{segment, kControlBytes};
};

class PoolUnderRandomUse : public PoolTest, public ::testing::WithParamInterface<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, PoolUnderRandomUse, ::testing::Range(std::uint64_t{1}, std::uint64_t{9}));

TEST_P(PoolUnderRandomUse, KeepsItsPromises) {
  std::mt19937_64 random(GetParam());
  std::map<std::uint64_t, std::size_t> live;  // offset → bytes
  std::size_t live_bytes = 0;
  std::size_t peak = 0;
  for (int step = 0; step < 300; ++step) {
    const auto action = random() % 40;
    if (action == 0) {
      pool.trim();
      peak = live_bytes;
    } else if (action > 18 || live.empty()) {
      const std::size_t bytes = random_bytes(random);
      const std::size_t pages = (std::max<std::size_t>(bytes, 1) + 4095) / 4096;
      const auto [block, is_new] = live.emplace(pool.allocate(bytes), pages * 4096);
      ASSERT_TRUE(is_new) << "blocks overlap";
      EXPECT_EQ(block->first % 4096, 0u);
      EXPECT_GE(block->first,
                block == live.begin() ? kControlBytes : std::prev(block)->first + std::prev(block)->second);
      EXPECT_LE(block->first + block->second, std::next(block) == live.end() ? kSegmentBytes : std::next(block)->first);
      live_bytes += block->second;
      peak = std::max(peak, live_bytes);
    } else {
      const auto block = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
      pool.release(block->first);
      live_bytes -= block->second;
      live.erase(block);
    }
    ASSERT_EQ(pool.live_bytes(), live_bytes) << "step " << step;
    ASSERT_LE(pool.committed_bytes(), peak + kReserveBytes) << "step " << step;
    ASSERT_EQ(pool.committed_bytes(), file_bytes(segment)) << "step " << step;
  }
}

TEST_F(PoolTest, ReusesWarmMemoryAsItIs) {
  const std::uint64_t first = pool.allocate(kMiB);
  std::memset(segment.base() + first, 7, kMiB);
  pool.release(first);
  const std::size_t committed = pool.committed_bytes();
  const std::uint64_t second = pool.allocate(kMiB);
  EXPECT_EQ(second, first);
  EXPECT_EQ(segment.base()[second], std::byte{7}) << "the pages went to the machine and came back";
  EXPECT_EQ(pool.committed_bytes(), committed);
}

TEST_F(PoolTest, SmallBlocksDontBreakUpTheLargestWarmRange) {
  const std::uint64_t large = pool.allocate(8 * kMiB);
  const std::uint64_t fence = pool.allocate(4096);
  const std::uint64_t small = pool.allocate(kMiB);
  pool.allocate(4096);
  pool.release(large);
  pool.release(small);
  EXPECT_EQ(pool.allocate(kMiB), small);
  EXPECT_EQ(pool.allocate(8 * kMiB), large);
  pool.release(fence);
}

TEST_F(PoolTest, TrimGivesBackAllButTheReserve) {
  pool.release(pool.allocate(200 * kMiB));
  EXPECT_GE(file_bytes(segment), 200 * kMiB) << "freed memory stays warm until trim";
  EXPECT_TRUE(pool.trim());
  EXPECT_LE(file_bytes(segment), kReserveBytes);
  EXPECT_FALSE(pool.trim());
}

TEST_F(PoolTest, FreedNeighboursBecomeOneRange) {
  const std::uint64_t a = pool.allocate(kMiB);
  const std::uint64_t b = pool.allocate(kMiB);
  const std::uint64_t c = pool.allocate(kMiB);
  pool.release(a);
  pool.release(c);
  pool.release(b);
  const std::size_t committed = pool.committed_bytes();
  EXPECT_EQ(pool.allocate(3 * kMiB), a);
  EXPECT_EQ(pool.committed_bytes(), committed);
}

TEST(Pool, ThrowsWhenThereIsNoRoomAndStaysUsable) {
  Segment segment = Segment::anonymous(16 * kMiB);
  Pool pool(segment, kControlBytes);
  for (const std::size_t bytes : {17 * kMiB, 16 * kMiB, SIZE_MAX})
    require_error([&] { pool.allocate(bytes); }, ErrorCode::system, "");
  EXPECT_EQ(pool.live_bytes(), 0u);
  pool.allocate(8 * kMiB);
}

}  // namespace
}  // namespace shunt::test
