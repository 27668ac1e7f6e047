// Devices between nodes, where the device is host memory: every operation against the reference, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/cuda/cluster_case.hpp"
#include "engine/cuda/host_lane.hpp"
#include "engine/cuda/nccl_of_threads.hpp"
#include "support/hosts_of_processes.hpp"

namespace shunt::test {
namespace {

struct Pipeline {
  const char* name;
  std::int32_t slice_bytes;
  std::int32_t ring_depth;
  std::size_t batch_bytes;
  std::size_t num_batches;
  std::size_t num_cases = 60;
  bool is_nccl = false;
};
void PrintTo(const Pipeline& pipeline, std::ostream* out) { *out << pipeline.name; }

class ClusterOnHost : public ::testing::TestWithParam<Pipeline> {};

void run_on_host(World& world, const ShuffleCase& all, const Pipeline& pipeline) {
  std::vector<std::vector<std::byte>> plain;
  HostStream stream;
  const ClusterDevice device{
      .make_lane =
          [&](const Engine& engine, std::uint64_t seed) {
            const std::size_t bytes =
                std::max(pipeline.batch_bytes, static_cast<std::size_t>(all.options.hidden) * sizeof(float));
            return std::make_shared<HostLane>(*engine.impl(), HostLane::Buffers{bytes, pipeline.num_batches}, seed);
          },
      .join_nccl = [&](device::Lane& lane) -> std::shared_ptr<device::NcclNetwork> {
        if (!pipeline.is_nccl) return nullptr;
        const NcclOfThreadsId id{.number = all.seed * 100 + static_cast<std::uint64_t>(world.size())};
        return make_nccl_of_threads(world, lane, id);
      },
      .take_plain = [&](std::size_t bytes) { return plain.emplace_back(bytes).data(); },
      .stream = all.seed % 2 == 0 ? stream.handle() : nullptr,
      .write_late =
          [&](device::Lane&, std::byte* to, std::span<const std::byte> bytes) {
            stream.put([to, copy = std::vector(bytes.begin(), bytes.end())] { std::ranges::copy(copy, to); });
          }};
  run_cluster_case(world, device, all);
}

TEST_P(ClusterOnHost, EqualsTheReferenceBitForBit) {
  const Pipeline pipeline = GetParam();
  for (const Topology& topology : {Topology::virtual_nodes(4, 2), Topology::virtual_nodes(7, 3),
                                   Topology::virtual_nodes(3, 3), Topology::single_node(2)}) {
    const std::vector<ShuffleCase> cases = cluster_cases(topology, pipeline.num_cases);
    SpawnOptions options{.kind = WorldKind::islands, .topology = topology};
    options.environment.slice_bytes = pipeline.slice_bytes;
    options.environment.ring_depth = pipeline.ring_depth;
    options.environment.deadline = std::chrono::seconds(20);
    ASSERT_NO_THROW(World::spawn(
        topology.num_ranks(),
        [&](World& world) {
          for (const ShuffleCase& each : cases) run_on_host(world, each, pipeline);
        },
        options));
  }
}

const auto kName = [](const auto& parameter) { return std::string(parameter.param.name); };
INSTANTIATE_TEST_SUITE_P(Network, ClusterOnHost,
                         ::testing::Values(Pipeline{"AsByDefault", 128 << 10, 0, 1 << 20, 16},
                                           Pipeline{"RowsStraddleSlices", 7, 3, 256, 4, 12},
                                           Pipeline{"OneBufferForAll", 1000, 1, 256, 1},
                                           Pipeline{"SomeBuffers", 4096, 2, 1 << 14, 2}),
                         kName);
INSTANTIATE_TEST_SUITE_P(Nccl, ClusterOnHost,
                         ::testing::Values(Pipeline{"LargeBatches", 100, 1, 1 << 20, 1, 20, true},
                                           Pipeline{"SmallBatches", 100, 1, 256, 1, 20, true}),
                         kName);

class ClusterOnHostProcesses : public ::testing::TestWithParam<std::string> {};

TEST_P(ClusterOnHostProcesses, GiveTheSameBits) {
  if (const std::string why = why_no_hosts(GetParam()); !why.empty()) GTEST_SKIP() << why;
  const Topology topology = Topology::virtual_nodes(4, 2);
  const std::vector<ShuffleCase> cases = cluster_cases(topology, 20);
  const auto run = [&](World& world) {
    for (const ShuffleCase& each : cases) run_on_host(world, each, {"", 4096, 2, 1 << 14, 2});
  };
  ASSERT_NO_THROW(run_on_hosts(2, 2, run, std::chrono::seconds(60), GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Over, ClusterOnHostProcesses, ::testing::Values("tcp", "ucx"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace shunt::test
