// Devices between nodes: every operation against the reference, bit for bit; and what happens when a rank is missing.
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/cuda/check.hpp"
#include "core/cuda/stream.hpp"
#include "engine/cuda/cluster/cuda_lane.hpp"
#include "engine/cuda/cluster/engine_impl.hpp"
#include "engine/cuda/cluster_case.hpp"
#include "support/child_process.hpp"
#include "support/cuda/device.hpp"
#include "support/cuda/stream_work.hpp"
#include "support/hosts_of_processes.hpp"

namespace shunt::test {
namespace {

/// All cases on this rank's part of one GPU.
void run_cases(World& world, const std::vector<ShuffleCase>& cases, const device::BufferLimits& limits,
               DeviceNetwork network = DeviceNetwork::world) {
  const DeviceHeap heap(world, {.bytes = 64 << 20});
  std::shared_ptr<device::NcclNetwork> nccl;
  if (network == DeviceNetwork::nccl)
    nccl =
        device::NcclNetwork::join(world, limits.bytes, [&](std::size_t bytes) { return heap.impl()->allocate(bytes); });
  Arena arena(32 << 20);
  preload_stream_work();
  const std::shared_ptr<CUstream_st> stream = device::make_stream();  // the caller's, on which everything is late
  for (const ShuffleCase& each : cases) {
    const ClusterDevice on_gpu{.make_lane =
                                   [&](const Engine& engine, std::uint64_t) {
                                     const World::Impl& engine_world = *engine.impl()->world;
                                     return std::make_shared<device::CudaLane>(
                                         engine_world.fabric->transport(), *engine_world.group, heap.impl(), limits);
                                   },
                               .join_nccl = [&](device::Lane&) { return nccl; },
                               .take_plain = [&](std::size_t bytes) { return arena.take(bytes); },
                               .stream = each.seed % 2 == 0 ? stream.get() : nullptr,
                               .write_late =
                                   [&](device::Lane& lane, std::byte* to, std::span<const std::byte> bytes) {
                                     std::byte* const from = arena.take(bytes.size());
                                     lane.upload(from, bytes);
                                     delay(std::chrono::microseconds(200), 1, stream.get());
                                     device::launch(device::CopyBytes{from, to, bytes.size()}, stream.get());
                                   }};
    arena.reset();
    run_cluster_case(world, on_gpu, each);
  }
  world.barrier();
}

struct Pipeline {
  const char* name;
  std::int32_t slice_bytes;
  std::int32_t ring_depth;
  device::BufferLimits batches;
};
void PrintTo(const Pipeline& pipeline, std::ostream* out) { *out << pipeline.name; }

class DeviceCluster : public ::testing::TestWithParam<Pipeline> {};

TEST_P(DeviceCluster, EqualsTheReferenceBitForBit) {
  SHUNT_NEEDS_DEVICE();
  const Pipeline pipeline = GetParam();
  for (const Topology& topology : {Topology::virtual_nodes(4, 2), Topology::virtual_nodes(7, 3)}) {
    const std::vector<ShuffleCase> cases = cluster_cases(topology, 20);
    SpawnOptions options{.kind = WorldKind::islands, .topology = topology};
    options.environment.slice_bytes = pipeline.slice_bytes;
    options.environment.ring_depth = pipeline.ring_depth;
    options.environment.deadline = std::chrono::seconds(20);
    ASSERT_NO_THROW(World::spawn(
        topology.num_ranks(), [&](World& world) { run_cases(world, cases, pipeline.batches); }, options));
  }
}

INSTANTIATE_TEST_SUITE_P(Pipelines, DeviceCluster,
                         ::testing::Values(Pipeline{"AsByDefault", 128 << 10, 0, {1 << 20, 16}},
                                           Pipeline{"RowsStraddleSlices", 100, 2, {4096, 2}}),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

// Alone in its process, as ctest runs it: after another test of this program CUDA is not to be had in forked ranks.
class DeviceClusterProcesses : public ::testing::TestWithParam<std::string> {};

TEST_P(DeviceClusterProcesses, GiveTheSameBits) {
  if (!forked_ranks_have_device()) GTEST_SKIP() << "no CUDA device";
  if (const std::string why = why_no_hosts(GetParam()); !why.empty()) GTEST_SKIP() << why;
  const Topology topology = Topology::virtual_nodes(4, 2);
  const std::vector<ShuffleCase> cases = cluster_cases(topology, 10);
  const auto run = [&](World& world) { run_cases(world, cases, {1 << 20, 4}); };
  ASSERT_NO_THROW(run_on_hosts(2, 2, run, std::chrono::seconds(25), GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Over, DeviceClusterProcesses, ::testing::Values("tcp", "ucx"),
                         [](const auto& parameter) { return parameter.param; });

/// Token t of every rank goes to the expert of rank t. All elements of a token are 1 + t.
class RoundTrip {
 public:
  RoundTrip(World& world, const DeviceHeap& heap, DeviceNetwork network = DeviceNetwork::world)
      : num_tokens_(world.size()),
        engine_(world, heap, {.engine = {.hidden = kHidden, .dtype = f32}, .network = network}),
        x_(heap.allocate(f32, num_tokens_, kHidden)) {
    std::vector<std::int32_t> experts;
    std::vector<float> x;
    for (std::int32_t token = 0; token < world.size(); ++token) {
      experts.push_back(token);
      x.insert(x.end(), kHidden, static_cast<float>(1 + token));
    }
    const Tensor routing = heap.allocate(f32, num_tokens_, 1);
    upload(routing.data, std::as_bytes(std::span(experts)), stream_.get());
    upload(x_.data, std::as_bytes(std::span(x)), stream_.get());
    plan_ = engine_.plan(
        {.experts = reinterpret_cast<const std::int32_t*>(routing.data), .num_tokens = num_tokens_, .topk = 1},
        ExpertMap::contiguous(world.size(), world.size()));
  }

  void run() {
    const Tensor rows = engine_.dispatch(plan_, x_).wait().rows;
    const Tensor sums = engine_.combine(plan_, rows).wait();
    const auto expected = download(x_.data, x_.bytes(), stream_.get());
    if (download(sums.data, sums.bytes(), stream_.get()) != expected) throw std::runtime_error("a token has changed");
  }

 private:
  static constexpr std::int64_t kHidden = 64;

  std::int64_t num_tokens_;
  std::shared_ptr<CUstream_st> stream_ = device::make_stream();
  DeviceClusterEngine engine_;
  Tensor x_;
  DeviceClusterPlan plan_;
};

/// Ranks that share a GPU and pretend not to: NCCL then takes the way between hosts.
void pretend_to_be_apart(const World& world) {
  setenv("NCCL_HOSTID", std::to_string(world.rank().value).c_str(), 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  setenv("NCCL_P2P_DISABLE", "1", 1);
  setenv("NCCL_SHM_DISABLE", "1", 1);
}

/// Empty if ranks of two processes can use NCCL here, else why not.
std::string why_no_nccl() {
  if (!forked_ranks_have_device()) return "no CUDA device";
  if (std::string why = why_no_hosts(); !why.empty()) return why;
  ChildProcess child([] { (void)nccl::Library::load(); });
  const auto end = child.wait();
  return end && end->returned ? "" : end ? end->error : "NCCL can't be loaded";
}

// Alone in its process, as ctest runs it.
TEST(DeviceClusterNccl, GivesTheSameBitsBetweenProcesses) {
  if (const std::string why = why_no_nccl(); !why.empty()) GTEST_SKIP() << why;
  const Topology topology = Topology::virtual_nodes(2, 2);
  const std::vector<ShuffleCase> cases = cluster_cases(topology, 10);
  const auto run = [&](World& world) {
    pretend_to_be_apart(world);
    constexpr std::size_t kBatchBytes = 16 << 10;  // several rounds
    run_cases(world, cases, {kBatchBytes, 1}, DeviceNetwork::nccl);
  };
  ASSERT_NO_THROW(run_on_hosts(2, 1, run, std::chrono::seconds(40)));
}

// Alone in its process, as ctest runs it.
TEST(DeviceClusterNccl, LeavesTheDeviceUsableWhenARankNeverComes) {
  if (const std::string why = why_no_nccl(); !why.empty()) GTEST_SKIP() << why;
  setenv("SHUNT_DEADLINE_MS", "1000", 1);
  const auto run = [](World& world) {
    pretend_to_be_apart(world);
    const DeviceHeap heap(world, {.bytes = 16 << 20});
    std::optional<RoundTrip> trip(std::in_place, world, heap, DeviceNetwork::nccl);
    trip->run();
    if (world.rank().value == 1) return std::this_thread::sleep_for(std::chrono::seconds(3));
    std::optional<ErrorCode> code;
    try {
      trip->run();
    } catch (const Error& error) {
      code = error.code();
    }
    if (code != ErrorCode::deadline) throw std::runtime_error("not the expected Error");
    device::check(cudaDeviceSynchronize(), "use the device after a fault");
    trip.reset();
    device::check(cudaDeviceSynchronize(), "use the device without the engine");
  };
  ASSERT_NO_THROW(run_on_hosts(2, 1, run, std::chrono::seconds(40)));
}

SpawnOptions two_islands() {
  SpawnOptions options{.kind = WorldKind::islands, .topology = Topology::virtual_nodes(4, 2)};
  options.environment.deadline = std::chrono::milliseconds(500);
  return options;
}

TEST(DeviceClusterFault, ARankThatNeverComesIsAnErrorOnAllRanksAndTheDeviceStaysUsable) {
  SHUNT_NEEDS_DEVICE();
  std::atomic<int> num_errors{0};
  const auto run = [&](World& world) {
    const DeviceHeap heap(world, {.bytes = 16 << 20});
    RoundTrip trip(world, heap);
    trip.run();
    if (world.rank().value == 2) {
      std::this_thread::sleep_for(std::chrono::seconds(2));
      return;
    }
    try {
      trip.run();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 2"));
      num_errors += error.code() == ErrorCode::deadline;
    }
  };
  ASSERT_NO_THROW(World::spawn(4, run, two_islands()));
  EXPECT_EQ(num_errors, 3);
  ASSERT_NO_THROW(World::spawn(
      4,
      [](World& world) {
        const DeviceHeap heap(world, {.bytes = 16 << 20});
        RoundTrip(world, heap).run();
        world.barrier();
      },
      two_islands()));
}

}  // namespace
}  // namespace shunt::test
