#include "bench/selftest/warnings.hpp"

#include <gmock/gmock.h>

#include <limits>

namespace shunt::bench::selftest {
namespace {

using testing::ElementsAre, testing::HasSubstr, testing::IsEmpty;

constexpr double kGib = 1 << 30, kNone = std::numeric_limits<double>::infinity();

MachineFacts good_machine() {
  MachineFacts machine;
  machine.cpus = machine.allowed_cpus = 64;
  machine.memory_bytes = machine.available_bytes = 512 * kGib;
  machine.group = {kNone, kNone, kNone};
  machine.limits = {.locked_memory_bytes = kNone, .open_files = 1e5, .processes = 1e5, .address_space_bytes = kNone};
  machine.shared_memory = {.exists = true, .is_writable = true, .bytes = 64 * kGib, .free_bytes = 64 * kGib};
  return machine;
}

Gpu gpu(std::vector<int> peers) {
  Gpu made;
  made.facts.compute_mode = "default";
  made.facts.driver_version = made.facts.runtime_version = 13000;
  made.facts.peers = std::move(peers);
  return made;
}

BusFacts good_bus() {
  BusFacts bus;
  bus.interfaces = {{.name = "lo", .state = "unknown", .is_loopback = true}};
  bus.rdma = {{.name = "mlx5_0", .is_active = true}};
  bus.gpus = {gpu({1}), gpu({0})};
  bus.gpus_on_bus = bus.gpu_files = 2;
  return bus;
}

class Warnings : public testing::Test {
 protected:
  [[nodiscard]] std::vector<std::string> warnings() const { return warnings_of(machine_, bus_, setup_); }
  MachineFacts machine_ = good_machine();
  BusFacts bus_ = good_bus();
  RunSetup setup_ = {.ranks = 4, .has_ucx = true};
};

TEST_F(Warnings, AreEmptyForAGoodMachine) { EXPECT_THAT(warnings(), IsEmpty()); }

TEST_F(Warnings, NameFewCores) {
  machine_.allowed_cpus = 2;
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("2 CPUs, fewer than the 4 ranks")));
}

TEST_F(Warnings, NameAControlGroupWithLittleTimeOrMemory) {
  machine_.group = {4 * kGib, 1 * kGib, 1.5};
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("1.5 CPUs"), HasSubstr("leaves 1.0 GiB")));
}

TEST_F(Warnings, NameSharedMemoryThatIsSmallMissingOrReadOnly) {
  machine_.shared_memory.free_bytes = kGib / 16;
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("--shm-size")));
  machine_.shared_memory.is_writable = false;
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("can't be written")));
  machine_.shared_memory.exists = false;
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("there is no /dev/shm")));
}

TEST_F(Warnings, NameLittleLockedMemoryOnlyWithRdma) {
  machine_.limits.locked_memory_bytes = 65536;
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("ulimit -l unlimited")));
  bus_.rdma.clear();
  EXPECT_THAT(warnings(), IsEmpty());
}

TEST_F(Warnings, NameFewOpenFilesAndLittleAddressSpace) {
  machine_.limits.open_files = 256;
  machine_.limits.address_space_bytes = kGib;
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("ulimit -n"), HasSubstr("ulimit -v")));
}

TEST_F(Warnings, NameRdmaThatCantBeUsed) {
  setup_.has_ucx = false;
  bus_.rdma.push_back({.name = "mlx5_1"});
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("UCX"), HasSubstr("mlx5_1 has no active port")));
}

TEST_F(Warnings, NameALoopbackInterfaceThatIsDown) {
  bus_.interfaces[0].state = "down";
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("ip link set lo up")));
}

TEST_F(Warnings, NameGpusThatAreNotPeers) {
  bus_.gpus = {gpu({1}), gpu({0}), gpu({})};
  bus_.gpus_on_bus = bus_.gpu_files = 3;
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("GPUs 0-2, 1-2 can't reach")));
}

TEST_F(Warnings, NameGpusThatThisProcessCantUse) {
  bus_.gpus_on_bus = 8;
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("8 GPUs are on the bus")));
}

TEST_F(Warnings, NameAComputeModeAnOldDriverAndADistantNic) {
  bus_.gpus[1].facts.compute_mode = "exclusive_process";
  bus_.gpus[1].facts.driver_version = 12040;
  bus_.gpus[1].nearest_nic = "mlx5_0";
  bus_.gpus[1].nearness = Nearness::other_numa_node;
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("GPU 1 is in compute mode exclusive_process"),
                                      HasSubstr("supports CUDA 12.4, older than the 13.0"), HasSubstr("crosses")));
}

TEST_F(Warnings, NameFewConnectionsOnlyWithGpus) {
  setup_.device_connections = 2;
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("CUDA_DEVICE_MAX_CONNECTIONS is 2")));
  bus_.gpus.clear();
  bus_.gpus_on_bus = bus_.gpu_files = 0;
  EXPECT_THAT(warnings(), IsEmpty());
}

}  // namespace
}  // namespace shunt::bench::selftest
