#include "bench/selftest/bus_facts.hpp"

#include <gmock/gmock.h>

#include "bench/selftest/system_tree.hpp"

namespace shunt::bench::selftest {
namespace {

/// Two sockets; behind the first one a switch with a GPU and an RDMA device.
class BusFactsOf : public testing::Test {
 protected:
  BusFactsOf() {
    tree_.add_pci_device("pci0000:17/0000:17:01.0/0000:18:00.0/0000:19:00.0/0000:1b:00.0", "0", "0x10de", "0x030200");
    tree_.add_pci_device("pci0000:17/0000:17:01.0/0000:18:00.0/0000:19:01.0/0000:1c:00.0", "0");
    tree_.add_pci_device("pci0000:30/0000:30:01.0/0000:31:00.0", "0");
    tree_.add_pci_device("pci0000:b0/0000:b0:01.0/0000:b1:00.0", "1", "0x10de", "0x030000");
    tree_.add_pci_device("pci0000:b0/0000:b0:02.0/0000:b2:00.0", "1", "0x10de", "0x040300");  // its sound
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

  test::SystemTree tree_;
};

TEST_F(BusFactsOf, InterfacesHaveStateSpeedAndPlace) {
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

TEST_F(BusFactsOf, RdmaDevicesAreActiveByTheirPorts) {
  add_rdma("mlx5_0", "0000:1c:00.0");
  add_rdma("mlx5_1", "0000:31:00.0", "1: DOWN");
  const auto rdma = facts().rdma;
  ASSERT_EQ(rdma.size(), 2);
  EXPECT_TRUE(rdma[0].is_active);
  EXPECT_EQ(rdma[0].rate, "400 Gb/sec (4X NDR)");
  EXPECT_FALSE(rdma[1].is_active);
}

TEST_F(BusFactsOf, TheNearestDeviceIsBehindTheSameSwitch) {
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

TEST_F(BusFactsOf, TheNearestDeviceIsAnInterfaceWhereNoRdmaIsActive) {
  add_rdma("mlx5_0", "0000:1c:00.0", "1: DOWN");
  tree_.link("sys/class/net/eth0/device", "sys/bus/pci/devices/0000:31:00.0");
  tree_.make_folder("sys/class/net/lo");
  const auto gpus = facts().gpus;
  EXPECT_EQ(gpus[0].nearest_nic, "eth0");
  EXPECT_EQ(gpus[0].nearness, Nearness::same_numa_node);
}

TEST_F(BusFactsOf, GpusAreCountedOnTheBusAndByTheirFiles) {
  EXPECT_EQ(facts().gpus_on_bus, 2);
  EXPECT_EQ(facts().gpu_files, 0);
  for (const char* name : {"nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm"})
    tree_.write(std::string("dev/") + name, "");
  EXPECT_EQ(facts().gpu_files, 2);
}

TEST(NearnessOf, SocketsThatTheMachineDoesNotTellIsUnknown) {
  const BusPlace here{.pci_address = "0000:01:00.0", .path = {"pci0000:00", "0000:01:00.0"}};
  const BusPlace there{.pci_address = "0000:81:00.0", .path = {"pci0000:80", "0000:81:00.0"}};
  EXPECT_EQ(nearness_of(here, there), Nearness::unknown);
  EXPECT_EQ(nearness_of(here, {}), Nearness::unknown);
  const BusPlace beside{.pci_address = "0000:02:00.0", .path = {"pci0000:00", "0000:02:00.0"}};
  EXPECT_EQ(nearness_of(here, beside), Nearness::same_root);
}

TEST(FindDevices, EitherFindsSomeOrSaysWhyNot) {
  const FoundDevices found = find_devices();
  EXPECT_NE(found.devices.empty(), found.why_not.empty());
}

}  // namespace
}  // namespace shunt::bench::selftest
