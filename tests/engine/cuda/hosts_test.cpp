// Devices of several hosts: processes that reach each other over a network, or by NCCL.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <thread>

#include "core/cuda/check.hpp"
#include "engine/rank_of_case.hpp"
#include "engine/small_shuffle.hpp"
#include "support/child_process.hpp"
#include "support/hosts_of_processes.hpp"
#include "support/require_error.hpp"
#include "transport/nccl/library.hpp"

namespace shunt::test {
namespace {

std::vector<ShuffleCase> draw_cases(const Topology& topology, std::size_t count) {
  std::vector<ShuffleCase> cases;
  for (std::uint64_t seed = 0; cases.size() < count; ++seed)
    if (ShuffleCase drawn = random_shuffle_case(seed, topology); can_run(EngineKind::cluster, drawn))
      cases.push_back(std::move(drawn));
  return cases;
}

// Alone in its process, as ctest runs it: after another test of this program CUDA is not to be had in forked ranks.
class DeviceHosts : public ::testing::TestWithParam<std::string> {};

TEST_P(DeviceHosts, GiveTheSameBits) {
  SHUNT_NEEDS(kDeviceProcesses);
  if (const std::string why = why_no_hosts(GetParam()); !why.empty()) GTEST_SKIP() << why;
  const std::vector<ShuffleCase> cases = draw_cases(Topology::virtual_nodes(4, 2), 10);
  const auto run = [&](World& world) {
    for (const ShuffleCase& each : cases) run_case(world, kDeviceProcesses, each);
    world.barrier();
  };
  ASSERT_NO_THROW(run_on_hosts(2, 2, run, std::chrono::seconds(25), GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Over, DeviceHosts, ::testing::Values("tcp", "ucx"),
                         [](const auto& parameter) { return parameter.param; });

/// Ranks that share a GPU and pretend not to: NCCL then takes the way between hosts.
void pretend_to_be_apart(const World& world) {
  setenv("NCCL_HOSTID", std::to_string(world.rank().value).c_str(), 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  setenv("NCCL_P2P_DISABLE", "1", 1);
  setenv("NCCL_SHM_DISABLE", "1", 1);
}

/// Empty if ranks of two processes can use NCCL here, else why not.
std::string why_no_nccl() {
  if (std::string why = kDeviceProcesses.why_not(); !why.empty()) return why;
  if (std::string why = why_no_hosts(); !why.empty()) return why;
  ChildProcess child([] { (void)nccl::Library::load(); });
  const auto end = child.wait();
  return end && end->returned ? "" : end ? end->error : "NCCL can't be loaded";
}

DeviceOptions by_nccl() {
  DeviceOptions device = small_device();
  device.network = DeviceNetwork::nccl;
  device.batch_bytes = 16 << 10;  // several rounds
  device.num_batches = 1;
  return device;
}

// Alone in its process, as ctest runs it.
TEST(DeviceNccl, GivesTheSameBitsBetweenProcesses) {
  if (const std::string why = why_no_nccl(); !why.empty()) GTEST_SKIP() << why;
  const std::vector<ShuffleCase> cases = draw_cases(Topology::virtual_nodes(2, 2), 10);
  const auto run = [&](World& world) {
    pretend_to_be_apart(world);
    for (const ShuffleCase& each : cases) run_case(world, kDeviceProcesses, each, {}, by_nccl());
    world.barrier();
  };
  ASSERT_NO_THROW(run_on_hosts(2, 1, run, std::chrono::seconds(60)));
}

// Alone in its process, as ctest runs it.
TEST(DeviceNccl, LeavesTheDeviceUsableWhenARankNeverComes) {
  if (const std::string why = why_no_nccl(); !why.empty()) GTEST_SKIP() << why;
  const auto run = [](World& world) {
    pretend_to_be_apart(world);
    const EngineOptions options =
        kDeviceProcesses.options({.hidden = 64, .dtype = f32, .deadline = std::chrono::seconds(1)}, by_nccl());
    std::optional<Engine> engine(std::in_place, world, options);
    const std::vector<std::int32_t> experts = {0, 1};
    const Plan plan = engine->plan({.experts = experts}, ExpertMap::contiguous(2, 2));
    const Tensor x = engine->allocate(f32, 2, 64);
    fill(*engine, x, 1.0f);
    (void)engine->dispatch(plan, x).wait();
    if (world.rank().value == 1) return std::this_thread::sleep_for(std::chrono::seconds(3));
    require_error([&] { (void)engine->dispatch(plan, x).wait(); }, ErrorCode::deadline, "rank 1");
    device::check(cudaDeviceSynchronize(), "use the device after a fault");
    engine.reset();
    device::check(cudaDeviceSynchronize(), "use the device without the engine");
  };
  ASSERT_NO_THROW(run_on_hosts(2, 1, run, std::chrono::seconds(40)));
}

}  // namespace
}  // namespace shunt::test
