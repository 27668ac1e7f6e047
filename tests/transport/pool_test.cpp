#include "transport/local/pool.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <map>
#include <random>

#include "support/require_error.hpp"

namespace shunt::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kSegmentBytes = 2048 * kMiB;
constexpr std::size_t kControlBytes = 10'000;

/// As the kernel counts them.
std::size_t bytes_of(const Segment& segment) {
  struct stat status {};
  fstat(segment.fd(), &status);
  return static_cast<std::size_t>(status.st_blocks) * 512;
}

/// The pool's promises, restated as simply as possible.
class Model {
 public:
  void allocate(std::uint64_t offset, std::size_t bytes) {
    EXPECT_EQ(offset % 4096, 0u);
    EXPECT_GE(offset, kControlBytes);
    EXPECT_LE(offset + bytes, kSegmentBytes);
    const auto after = live_.lower_bound(offset);
    EXPECT_TRUE(after == live_.end() || offset + bytes <= after->first) << "blocks overlap";
    EXPECT_TRUE(after == live_.begin() || std::prev(after)->first + std::prev(after)->second <= offset)
        << "blocks overlap";
    live_.emplace(offset, bytes);
    peak_ = std::max(peak_, live_bytes());
  }
  std::uint64_t release(std::size_t index) {
    const auto block = std::next(live_.begin(), static_cast<std::ptrdiff_t>(index % live_.size()));
    const std::uint64_t offset = block->first;
    live_.erase(block);
    return offset;
  }
  void trim() { peak_ = live_bytes(); }

  [[nodiscard]] bool empty() const { return live_.empty(); }
  [[nodiscard]] std::size_t peak() const { return peak_; }
  [[nodiscard]] std::size_t live_bytes() const {
    std::size_t total = 0;
    for (const auto& [offset, bytes] : live_) total += (std::max<std::size_t>(bytes, 1) + 4095) / 4096 * 4096;
    return total;
  }

 private:
  std::map<std::uint64_t, std::size_t> live_;
  std::size_t peak_ = 0;
};

/// Mostly small blocks, some that strain the reserve.
std::size_t random_bytes(std::mt19937_64& random) {
  const std::size_t most = std::size_t{2} << (random() % 26);
  return random() % (most + 1);
}

class PoolUnderRandomUse : public ::testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, PoolUnderRandomUse, ::testing::Range(std::uint64_t{1}, std::uint64_t{9}));

TEST_P(PoolUnderRandomUse, KeepsItsPromises) {
  std::mt19937_64 random(GetParam());
  Segment segment = Segment::shareable(kSegmentBytes, "pool-test");
  Pool pool(segment, kControlBytes);
  Model model;
  for (int step = 0; step < 300; ++step) {
    const auto action = random() % 40;
    if (action == 0) {
      pool.trim();
      model.trim();
    } else if (action > 18 || model.empty()) {
      const std::size_t bytes = random_bytes(random);
      model.allocate(pool.allocate(bytes), bytes);
    } else {
      pool.release(model.release(random()));
    }
    ASSERT_EQ(pool.live_bytes(), model.live_bytes()) << "step " << step;
    ASSERT_LE(pool.committed_bytes(), model.peak() + kReserveBytes) << "step " << step;
    ASSERT_EQ(pool.committed_bytes(), bytes_of(segment)) << "step " << step;
  }
}

class PoolTest : public ::testing::Test {
 protected:
  Segment segment = Segment::shareable(kSegmentBytes, "pool-test");
  Pool pool{segment, kControlBytes};
};

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
  EXPECT_GE(bytes_of(segment), 200 * kMiB) << "freed memory stays warm until trim";
  EXPECT_TRUE(pool.trim());
  EXPECT_LE(bytes_of(segment), kReserveBytes);
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
