#include "transport/local/segment.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "shunt/error.hpp"
#include "support/require_error.hpp"
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

}  // namespace
}  // namespace shunt::test
