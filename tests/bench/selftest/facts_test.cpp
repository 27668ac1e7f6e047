#include "bench/selftest/facts.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/scratch_folder.hpp"

namespace shunt::bench::selftest {
namespace {

/// The files of /proc, /sys and /dev of a fictitious machine.
class SystemTree {
 public:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = make_folder_of(path);
    std::ofstream(file) << text << '\n';
  }
  void make_folder(const std::string& path) { std::filesystem::create_directories(root_.file(path)); }
  /// target: relative to the root of the tree.
  void link(const std::string& path, const std::string& target) {
    std::filesystem::create_directory_symlink(root_.file(target), make_folder_of(path));
  }
  /// Adds a PCI device to /sys.
  void add_pci_device(const std::string& path, const std::string& numa_node, const std::string& vendor = "0x15b3",
                      const std::string& device_class = "0x020000") {
    const std::string folder = "sys/devices/" + path;
    write(folder + "/numa_node", numa_node);
    write(folder + "/vendor", vendor);
    write(folder + "/class", device_class);
    link("sys/bus/pci/devices/" + path.substr(path.rfind('/') + 1), folder);
  }
  [[nodiscard]] std::filesystem::path root() const { return root_.file(""); }

 private:
  std::filesystem::path make_folder_of(const std::string& path) {
    const std::filesystem::path file = root_.file(path);
    std::filesystem::create_directories(file.parent_path());
    return file;
  }

  shunt::test::ScratchFolder root_;
};

class MachineFactsTest : public testing::Test {
 protected:
  [[nodiscard]] MachineFacts facts() const { return read_machine_facts(tree_.root()); }
  SystemTree tree_;
};

TEST_F(MachineFactsTest, AreUnknownInAnEmptyTree) {
  const MachineFacts nothing = facts();
  EXPECT_EQ(nothing.cpu, "");
  EXPECT_EQ(nothing.allowed_cpus, 0);
  EXPECT_FALSE(nothing.limits.open_files);
  EXPECT_FALSE(nothing.shared_memory.exists);
  EXPECT_TRUE(std::isinf(nothing.group.memory_bytes));
}

TEST_F(MachineFactsTest, CountCpusThatThisProcessMayUse) {
  tree_.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nprocessor\t: 1\nmodel name\t: other");
  tree_.write("proc/self/status", "Name:\tshunt\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,64-66\nMems_allowed: 1");
  tree_.write("sys/devices/system/cpu/online", "0-127");
  EXPECT_EQ(facts().cpu, "A CPU @ 2 GHz");
  EXPECT_EQ(facts().cpus, 128);
  EXPECT_EQ(facts().allowed_cpus, 7);
  EXPECT_EQ(facts().allowed_list, "0-3,64-66");
}

TEST_F(MachineFactsTest, ListNumaNodesInOrder) {
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

TEST_F(MachineFactsTest, HaveSoftLimits) {
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

TEST_F(MachineFactsTest, HaveMemoryOfMachineAndControlGroup) {
  tree_.write("proc/meminfo", "MemTotal:       9000 kB\nMemFree: 1 kB\nMemAvailable:   8000 kB");
  tree_.write("proc/self/cgroup", "0::/job");
  tree_.write("sys/fs/cgroup/job/memory.max", "4096000");
  tree_.write("sys/fs/cgroup/job/cpu.max", "150000 100000");
  EXPECT_DOUBLE_EQ(facts().memory_bytes, 9000 * 1024);
  EXPECT_DOUBLE_EQ(facts().available_bytes, 8000 * 1024);
  EXPECT_DOUBLE_EQ(facts().group.memory_bytes, 4096000);
  EXPECT_DOUBLE_EQ(facts().group.cpus, 1.5);
}

TEST_F(MachineFactsTest, DescribeTheSharedMemoryFileSystem) {
  tree_.make_folder("dev/shm");
  EXPECT_TRUE(facts().shared_memory.exists);
  EXPECT_TRUE(facts().shared_memory.is_writable);
  EXPECT_GT(facts().shared_memory.bytes, 0);
}

TEST(CountOfList, CountsRangesAndSingleNumbers) {
  EXPECT_EQ(count_of_list("0-3,8"), 5);
  EXPECT_EQ(count_of_list("7"), 1);
  EXPECT_EQ(count_of_list(""), 0);
  EXPECT_EQ(count_of_list("3-1"), 0);
  EXPECT_EQ(count_of_list("x"), 0);
}

/// A machine with two sockets; the first has a switch with a GPU and an RDMA device.
class BusFactsTest : public testing::Test {
 protected:
  BusFactsTest() {
    tree_.add_pci_device("pci0000:17/0000:17:01.0/0000:18:00.0/0000:19:00.0/0000:1b:00.0", "0", "0x10de", "0x030200");
    tree_.add_pci_device("pci0000:17/0000:17:01.0/0000:18:00.0/0000:19:01.0/0000:1c:00.0", "0");
    tree_.add_pci_device("pci0000:30/0000:30:01.0/0000:31:00.0", "0");
    tree_.add_pci_device("pci0000:b0/0000:b0:01.0/0000:b1:00.0", "1", "0x10de", "0x030000");
    tree_.add_pci_device("pci0000:b0/0000:b0:02.0/0000:b2:00.0", "1", "0x10de", "0x040300");  // the GPU's audio device
  }

  void add_rdma(const std::string& name, const std::string& pci_address, const std::string& state = "4: ACTIVE") {
    tree_.link("sys/class/infiniband/" + name + "/device", "sys/bus/pci/devices/" + pci_address);
    tree_.write("sys/class/infiniband/" + name + "/ports/1/state", state);
    tree_.write("sys/class/infiniband/" + name + "/ports/1/rate", "400 Gb/sec (4X NDR)");
    tree_.write("sys/class/infiniband/" + name + "/ports/1/link_layer", "InfiniBand");
  }
  [[nodiscard]] BusFacts facts() const {
    return read_bus_facts({{.name = "A", .pci_address = "0000:1b:00.0"}, {.name = "B", .pci_address = "0000:b1:00.0"}},
                          tree_.root());
  }

  SystemTree tree_;
};

TEST_F(BusFactsTest, InterfacesHaveStateSpeedAndPlace) {
  tree_.write("sys/class/net/eth0/operstate", "up");
  tree_.write("sys/class/net/eth0/speed", "100000");
  tree_.link("sys/class/net/eth0/device", "sys/bus/pci/devices/0000:31:00.0");
  tree_.write("sys/class/net/lo/operstate", "unknown");
  tree_.write("sys/class/net/lo/type", "772");
  tree_.write("sys/class/net/lo/speed", "-1");
  tree_.write("sys/class/net/bonding_masters", "");
  const auto interfaces = facts().interfaces;
  ASSERT_EQ(interfaces.size(), 2);
  EXPECT_EQ(interfaces[0].name, "eth0");
  EXPECT_EQ(interfaces[0].speed_mbps, 100000);
  EXPECT_EQ(interfaces[0].place.pci_address, "0000:31:00.0");
  EXPECT_EQ(interfaces[0].place.numa_node, 0);
  EXPECT_TRUE(interfaces[1].is_loopback);
  EXPECT_EQ(interfaces[1].speed_mbps, 0);
  EXPECT_EQ(interfaces[1].place.pci_address, "");
}

TEST_F(BusFactsTest, RdmaDevicesAreActiveIfAPortIs) {
  add_rdma("mlx5_0", "0000:1c:00.0");
  add_rdma("mlx5_1", "0000:31:00.0", "1: DOWN");
  const auto rdma = facts().rdma;
  ASSERT_EQ(rdma.size(), 2);
  EXPECT_TRUE(rdma[0].is_active);
  EXPECT_EQ(rdma[0].rate, "400 Gb/sec (4X NDR)");
  EXPECT_FALSE(rdma[1].is_active);
}

TEST_F(BusFactsTest, NearestNicIsBehindTheSameSwitch) {
  add_rdma("mlx5_0", "0000:31:00.0");
  add_rdma("mlx5_1", "0000:1c:00.0");
  const auto gpus = facts().gpus;
  ASSERT_EQ(gpus.size(), 2);
  EXPECT_EQ(gpus[0].nearest_nic, "mlx5_1");
  EXPECT_EQ(gpus[0].nearness, Nearness::same_switch);
  EXPECT_EQ(gpus[0].place.numa_node, 0);
  EXPECT_EQ(gpus[1].nearest_nic, "mlx5_0");
  EXPECT_EQ(gpus[1].nearness, Nearness::other_numa_node);
}

TEST_F(BusFactsTest, NearestNicIsAnInterfaceIfNoRdmaDeviceIsActive) {
  add_rdma("mlx5_0", "0000:1c:00.0", "1: DOWN");
  tree_.link("sys/class/net/eth0/device", "sys/bus/pci/devices/0000:31:00.0");
  tree_.make_folder("sys/class/net/lo");
  const auto gpus = facts().gpus;
  EXPECT_EQ(gpus[0].nearest_nic, "eth0");
  EXPECT_EQ(gpus[0].nearness, Nearness::same_numa_node);
}

TEST_F(BusFactsTest, CountGpusOnTheBusAndByDeviceFiles) {
  EXPECT_EQ(facts().gpus_on_bus, 2);
  EXPECT_EQ(facts().gpu_files, 0);
  for (const char* name : {"nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm"})
    tree_.write(std::string("dev/") + name, "");
  EXPECT_EQ(facts().gpu_files, 2);
}

TEST(NearnessOf, IsUnknownWithoutNumaNodes) {
  const BusPlace here{.pci_address = "0000:01:00.0", .path = {"pci0000:00", "0000:01:00.0"}};
  const BusPlace there{.pci_address = "0000:81:00.0", .path = {"pci0000:80", "0000:81:00.0"}};
  EXPECT_EQ(nearness_of(here, there), Nearness::unknown);
  EXPECT_EQ(nearness_of(here, {}), Nearness::unknown);
  const BusPlace beside{.pci_address = "0000:02:00.0", .path = {"pci0000:00", "0000:02:00.0"}};
  EXPECT_EQ(nearness_of(here, beside), Nearness::same_root);
}

TEST(FindDevices, FindsDevicesOrAReason) {
  const FoundDevices found = find_devices();
  EXPECT_NE(found.devices.empty(), found.why_not.empty());
}

}  // namespace
}  // namespace shunt::bench::selftest
