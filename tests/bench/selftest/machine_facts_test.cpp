#include "bench/selftest/machine_facts.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "bench/selftest/system_tree.hpp"

namespace shunt::bench::selftest {
namespace {

class MachineFactsOf : public testing::Test {
 protected:
  [[nodiscard]] MachineFacts facts() const { return read_machine_facts(tree_.root()); }
  test::SystemTree tree_;
};

TEST_F(MachineFactsOf, AnEmptyTreeAreUnknown) {
  const MachineFacts nothing = facts();
  EXPECT_EQ(nothing.cpu, "");
  EXPECT_EQ(nothing.allowed_cpus, 0);
  EXPECT_FALSE(nothing.limits.open_files);
  EXPECT_FALSE(nothing.shared_memory.exists);
  EXPECT_TRUE(std::isinf(nothing.group.memory_bytes));
}

TEST_F(MachineFactsOf, ProcessorsAreThoseThatThisProcessMayUse) {
  tree_.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nprocessor\t: 1\nmodel name\t: other");
  tree_.write("proc/self/status", "Name:\tshunt\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,64-66\nMems_allowed: 1");
  tree_.write("sys/devices/system/cpu/online", "0-127");
  EXPECT_EQ(facts().cpu, "A CPU @ 2 GHz");
  EXPECT_EQ(facts().cpus, 128);
  EXPECT_EQ(facts().allowed_cpus, 7);
  EXPECT_EQ(facts().allowed_list, "0-3,64-66");
}

TEST_F(MachineFactsOf, NumaNodesStandInOrder) {
  for (const char* index : {"0", "2", "10"}) {
    tree_.write(std::string("sys/devices/system/node/node") + index + "/cpulist", index);
    tree_.write(std::string("sys/devices/system/node/node") + index + "/meminfo",
                std::string("Node ") + index + " MemTotal:       1000 kB\nNode 0 MemFree: 1 kB");
  }
  tree_.write("sys/devices/system/node/online", "0,2,10");
  const auto nodes = facts().numa_nodes;
  ASSERT_EQ(nodes.size(), 3);
  EXPECT_EQ(nodes[1].index, 2);
  EXPECT_EQ(nodes[2].index, 10);
  EXPECT_EQ(nodes[2].cpus, "10");
  EXPECT_DOUBLE_EQ(nodes[2].memory_bytes, 1024000);
}

TEST_F(MachineFactsOf, LimitsAreThoseThatHoldNow) {
  tree_.write("proc/self/limits",
              "Limit                     Soft Limit           Hard Limit           Units\n"
              "Max open files            1024                 524288               files\n"
              "Max locked memory         65536                unlimited            bytes\n"
              "Max address space         unlimited            unlimited            bytes");
  const ProcessLimits limits = facts().limits;
  EXPECT_EQ(limits.open_files, 1024);
  EXPECT_EQ(limits.locked_memory_bytes, 65536);
  EXPECT_TRUE(std::isinf(limits.address_space_bytes.value_or(0)));
  EXPECT_FALSE(limits.processes);
}

TEST_F(MachineFactsOf, MemoryIsThatOfTheMachineAndOfTheGroup) {
  tree_.write("proc/meminfo", "MemTotal:       9000 kB\nMemFree: 1 kB\nMemAvailable:   8000 kB");
  tree_.write("proc/self/cgroup", "0::/job");
  tree_.write("sys/fs/cgroup/job/memory.max", "4096000");
  tree_.write("sys/fs/cgroup/job/cpu.max", "150000 100000");
  EXPECT_DOUBLE_EQ(facts().memory_bytes, 9000 * 1024);
  EXPECT_DOUBLE_EQ(facts().available_bytes, 8000 * 1024);
  EXPECT_DOUBLE_EQ(facts().group.memory_bytes, 4096000);
  EXPECT_DOUBLE_EQ(facts().group.cpus, 1.5);
}

TEST_F(MachineFactsOf, SharedMemoryIsTheFileSystemThatIsThere) {
  tree_.make_folder("dev/shm");
  EXPECT_TRUE(facts().shared_memory.exists);
  EXPECT_TRUE(facts().shared_memory.is_writable);
  EXPECT_GT(facts().shared_memory.bytes, 0);
}

TEST(CountOfList, IsOfRangesAndSingleNumbers) {
  EXPECT_EQ(count_of_list("0-3,8"), 5);
  EXPECT_EQ(count_of_list("7"), 1);
  EXPECT_EQ(count_of_list(""), 0);
  EXPECT_EQ(count_of_list("3-1"), 0);
  EXPECT_EQ(count_of_list("x"), 0);
}

}  // namespace
}  // namespace shunt::bench::selftest
