// Devices between nodes, where the device is host memory: every operation against the reference, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/cuda/host_lane.hpp"
#include "engine/cuda/nccl_of_threads.hpp"
#include "engine/rank_of_case.hpp"
#include "engine/row_block.hpp"
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
  const std::size_t bytes =
      std::max(pipeline.batch_bytes, static_cast<std::size_t>(all.options.hidden) * sizeof(float));
  const auto lane = std::make_shared<HostLane>(world, HostLane::Buffers{bytes, pipeline.num_batches},
                                               all.seed * 1000 + world.rank().index());
  std::shared_ptr<device::NcclNetwork> nccl;
  if (pipeline.is_nccl) {
    const NcclOfThreadsId id{.number = all.seed * 100 + static_cast<std::uint64_t>(world.size())};
    nccl = make_nccl_of_threads(world, *lane, id);
  }
  HostStream stream;
  Caller caller;
  if (all.seed % 2 == 0)
    caller = {stream.handle(), [&](const ConstTensor& from, const Tensor& to) {
                const auto copy = std::make_shared<HostRows>(from.dtype, from.rows, from.cols);
                copy_rows(from, copy->tensor());
                stream.put([copy, to] { copy_rows(copy->tensor(), to); });
              }};
  Engine engine = engine_on_host(world, all.options, lane, nccl);
  run_case(world, engine, all, {.caller = caller});
}

std::vector<ShuffleCase> draw_cases(const Topology& topology, std::size_t count) {
  std::vector<ShuffleCase> cases;
  for (std::uint64_t seed = 0; cases.size() < count; ++seed)
    if (ShuffleCase drawn = random_shuffle_case(seed, topology); can_run(EngineKind::cluster, drawn))
      cases.push_back(std::move(drawn));
  return cases;
}

TEST_P(ClusterOnHost, EqualsTheReferenceBitForBit) {
  const Pipeline pipeline = GetParam();
  for (const Topology& topology : {Topology::virtual_nodes(4, 2), Topology::virtual_nodes(7, 3),
                                   Topology::virtual_nodes(3, 3), Topology::single_node(2)}) {
    const std::vector<ShuffleCase> cases = draw_cases(topology, pipeline.num_cases);
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
  const std::vector<ShuffleCase> cases = draw_cases(topology, 20);
  const auto run = [&](World& world) {
    for (const ShuffleCase& each : cases) run_on_host(world, each, {"", 4096, 2, 1 << 14, 2});
  };
  ASSERT_NO_THROW(run_on_hosts(2, 2, run, std::chrono::seconds(60), GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Over, ClusterOnHostProcesses, ::testing::Values("tcp", "ucx"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace shunt::test
