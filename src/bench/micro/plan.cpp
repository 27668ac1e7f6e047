// The local work of planning, with maps without copies and with 12.5 % and 25 % additional copies.
// Compare times within one run only, or of two programs in turns: `bench_plan
// --benchmark_enable_random_interleaving=true --benchmark_repetitions=5 --benchmark_report_aggregates_only=true`.
//
// read_demand includes the choice of copies; plan_one_rank is all local work of a rank.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "plan/demand.hpp"
#include "plan/planner.hpp"

namespace shunt {
namespace {

constexpr std::size_t kTokens = 4096;
constexpr std::size_t kTopK = 8;
constexpr std::int32_t kRanksPerNode = 8;

/// Second copies of the first experts, each on the rank half-way round from the first copy.
ExpertMap map_with_copies(std::int32_t num_experts, std::int32_t num_ranks, std::int32_t num_replicas) {
  std::vector<std::vector<ExpertId>> placement(static_cast<std::size_t>(num_ranks));
  const auto place = [&](std::int32_t expert, std::int32_t rank) {
    placement[static_cast<std::size_t>(rank % num_ranks)].emplace_back(expert);
  };
  for (std::int32_t expert = 0; expert < num_experts; ++expert) place(expert, expert);
  for (std::int32_t expert = 0; expert < num_replicas; ++expert) place(expert, expert + num_ranks / 2);
  return ExpertMap::from_placement(num_experts, placement);
}

std::vector<std::int32_t> uniform_routing(std::int32_t num_experts) {
  std::mt19937 generator(1);
  std::vector<std::int32_t> all(static_cast<std::size_t>(num_experts)), experts;
  std::iota(all.begin(), all.end(), 0);
  for (std::size_t token = 0; token < kTokens; ++token) {
    std::shuffle(all.begin(), all.end(), generator);
    experts.insert(experts.end(), all.begin(), all.begin() + kTopK);
  }
  return experts;
}

/// Arguments: experts, ranks, and replicas in thousandths of the experts. All ranks have the same routing.
struct Work {
  explicit Work(const benchmark::State& state)
      : topology(Topology::virtual_nodes(num(state, 1), num(state, 1) / kRanksPerNode)),
        map(map_with_copies(num(state, 0), num(state, 1), num(state, 0) * num(state, 2) / 1000)),
        experts(uniform_routing(num(state, 0))),
        routing{experts, {}, static_cast<std::int32_t>(kTopK)} {}

  static std::int32_t num(const benchmark::State& state, std::size_t argument) {
    return static_cast<std::int32_t>(state.range(argument));
  }
  [[nodiscard]] Planner planner(RankId self) const {
    return {routing, map, topology, self, PlanOptions(), EngineShape{.hidden = 7168}};
  }

  Topology topology;
  ExpertMap map;
  std::vector<std::int32_t> experts;
  Routing routing;
};

void read_demand(benchmark::State& state) {
  const Work work(state);
  for (auto _ : state) benchmark::DoNotOptimize(read_demand(work.routing, work.map, work.topology, RankId(1)));
}

void plan_one_rank(benchmark::State& state) {
  const Work work(state);
  std::vector<Planner> planners;
  std::vector<std::span<const std::byte>> proposals;
  for (std::int32_t rank = 0; rank < work.map.num_ranks(); ++rank) planners.push_back(work.planner(RankId(rank)));
  for (const Planner& planner : planners) proposals.push_back(planner.proposal());
  for (auto _ : state) {
    Planner planner = work.planner(RankId(1));
    planner.accept(proposals);
    benchmark::DoNotOptimize(planner.finish());
  }
}

void with_maps(benchmark::internal::Benchmark* each) {
  each->ArgNames({"experts", "ranks", "replicas"})->ArgsProduct({{64, 256}, {8, 64}, {0, 125, 250}});
  each->Unit(benchmark::kMicrosecond);
}
BENCHMARK(read_demand)->Apply(with_maps);
BENCHMARK(plan_one_rank)->Apply(with_maps);

/// A world of 4,096 ranks with an expert each, on machines of eight: one rank's counts are used for all ranks.
void plan_one_of_4096_ranks(benchmark::State& state) {
  constexpr std::int32_t kRanks = 4096;
  const Topology topology = Topology::virtual_nodes(kRanks, kRanks / kRanksPerNode);
  const ExpertMap map = ExpertMap::contiguous(kRanks, kRanks);
  Wiring wiring;
  for (std::int32_t rank = 0; rank < kRanks; ++rank) wiring.add(HostId(topology.node(RankId(rank)).value), NicId(rank));
  std::vector<std::int32_t> experts;
  for (std::size_t entry = 0; entry < kTokens * kTopK; ++entry)
    experts.push_back(static_cast<std::int32_t>(entry * 37 % kRanks));
  const Routing routing{experts, {}, static_cast<std::int32_t>(kTopK)};
  const auto planner = [&] {
    return Planner(routing, map, topology, RankId(1), PlanOptions(), EngineShape{.hidden = 7168}, wiring);
  };
  const Planner own = planner();
  std::vector<std::vector<std::byte>> proposals(kRanks, {own.proposal().begin(), own.proposal().end()});
  for (std::int32_t rank = 0; rank < kRanks; ++rank)
    std::memcpy(proposals[static_cast<std::size_t>(rank)].data() + 3 * sizeof(std::uint32_t), &rank, sizeof(rank));
  const std::vector<std::span<const std::byte>> views(proposals.begin(), proposals.end());
  for (auto _ : state) {
    Planner each = planner();
    each.accept(views);
    benchmark::DoNotOptimize(each.finish());
  }
}
BENCHMARK(plan_one_of_4096_ranks)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace shunt
