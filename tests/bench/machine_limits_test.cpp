#include "bench/machine_limits.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>

#include "support/scratch_folder.hpp"

namespace shunt::bench {
namespace {

constexpr double kMb = 1e6;

class AvailableMemory : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_.file(path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << '\n';
  }

  [[nodiscard]] double megabytes() const { return available_memory_bytes(root_.file("")) / kMb; }

 private:
  test::ScratchFolder root_;
};

TEST_F(AvailableMemory, IsUnknownWithoutSystemFiles) { EXPECT_TRUE(std::isinf(megabytes())); }

TEST_F(AvailableMemory, IsTheMachinesWithoutGroupLimits) {
  write("proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable: 1000000 kB");
  write("proc/self/cgroup", "0::/job");
  write("sys/fs/cgroup/job/memory.max", "max");
  EXPECT_DOUBLE_EQ(megabytes(), 1024);
}

TEST_F(AvailableMemory, IsLimitedByTheGroup) {
  write("proc/meminfo", "MemAvailable: 1000000 kB");
  write("proc/self/cgroup", "0::/slice/job");
  write("sys/fs/cgroup/slice/job/memory.max", "300000000");
  EXPECT_DOUBLE_EQ(megabytes(), 300);
}

TEST_F(AvailableMemory, IsLimitedByAncestorsOfTheGroup) {
  write("proc/self/cgroup", "0::/slice/job");
  write("sys/fs/cgroup/slice/memory.max", "200000000");
  write("sys/fs/cgroup/slice/job/memory.max", "300000000");
  EXPECT_DOUBLE_EQ(megabytes(), 200);
}

TEST_F(AvailableMemory, IsLimitedByTheRootGroupOfAContainer) {
  write("proc/self/cgroup", "0::/");
  write("sys/fs/cgroup/memory.max", "300000000");
  EXPECT_DOUBLE_EQ(megabytes(), 300);
}

TEST_F(AvailableMemory, IsLimitedByAVersion1GroupAndItsAncestors) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/other\n4:memory:/slice/job\n0::/");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  write("sys/fs/cgroup/memory/slice/memory.limit_in_bytes", "400000000");
  write("sys/fs/cgroup/memory/slice/job/memory.limit_in_bytes", "300000000");
  EXPECT_DOUBLE_EQ(megabytes(), 300);
  write("sys/fs/cgroup/memory/slice/memory.limit_in_bytes", "200000000");
  EXPECT_DOUBLE_EQ(megabytes(), 200);
}

TEST_F(AvailableMemory, IsLimitedByAVersion1GroupWhosePathIsHiddenFromTheContainer) {
  write("proc/self/cgroup", "4:memory:/docker/1234");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "300000000");
  EXPECT_DOUBLE_EQ(megabytes(), 300);
}

TEST_F(AvailableMemory, ExcludesMemoryUsedByTheGroupExceptFileCaches) {
  write("proc/self/cgroup", "0::/job");
  write("sys/fs/cgroup/job/memory.max", "300000000");
  write("sys/fs/cgroup/job/memory.current", "150000000");
  write("sys/fs/cgroup/job/memory.stat", "anon 60000000\ninactive_file 70000000\nactive_file 20000000");
  EXPECT_DOUBLE_EQ(megabytes(), 240);

  write("proc/self/cgroup", "4:memory:/job");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "200000000");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "150000000");
  write("sys/fs/cgroup/memory/job/memory.stat",
        "inactive_file 1\nactive_file 1\ntotal_inactive_file 70000000\ntotal_active_file 20000000");
  EXPECT_DOUBLE_EQ(megabytes(), 140);
}

TEST_F(AvailableMemory, IsZeroIfTheGroupExceedsItsLimit) {
  write("proc/self/cgroup", "0::/job");
  write("sys/fs/cgroup/job/memory.max", "300000000");
  write("sys/fs/cgroup/job/memory.current", "310000000");
  EXPECT_DOUBLE_EQ(megabytes(), 0);
}

}  // namespace
}  // namespace shunt::bench
