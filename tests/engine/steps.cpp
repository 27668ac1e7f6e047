#include "engine/steps.hpp"

#include <algorithm>

#include "bench/reference/copies.hpp"
#include "support/dice.hpp"

namespace shunt::test {
namespace {

/// The same copies by a map in which each of them is an expert, without those on lost ranks: what is lost changes
/// nothing about the others.
RandomCase without_lost_copies(const RandomCase& whole, const std::vector<RankId>& lost) {
  const ExpertMap& map = whole.map;
  std::vector<std::vector<ExpertId>> placement(static_cast<std::size_t>(map.num_ranks()));
  for (std::int32_t copy = 0; copy < map.num_physical(); ++copy)
    placement[map.rank(PhysicalId(copy)).index()].emplace_back(copy);
  RandomCase rest = whole;
  rest.map = ExpertMap::from_placement(map.num_physical(), placement);
  const auto topk = static_cast<std::size_t>(rest.topk);
  for (std::size_t rank = 0; rank < rest.ranks.size(); ++rank) {
    const std::span experts(rest.ranks[rank].experts);
    for (std::size_t first = 0; first < experts.size(); first += topk) {
      const auto token = experts.subspan(first, topk);
      const auto copies = reference_copies(map, rest.topology, RankId(rank), token);
      for (std::size_t choice = 0; choice < topk; ++choice) {
        const bool is_lost = copies[choice].valid() && std::ranges::count(lost, map.rank(copies[choice])) > 0;
        token[choice] = is_lost ? -1 : copies[choice].value;
      }
    }
  }
  return rest;
}

/// What must come of the step's rows if this is how they are routed.
void expect_as_if(ShuffleCase& step, const RandomCase& routed) {
  const ReferenceShuffle reference(routed.routings(), routed.map, routed.topology, routed.options, step.options);
  step.expected.dispatch = reference.dispatch(step.x, step.scales);
  step.expected.combine = reference.combine(step.expert_out);
}

}  // namespace

ExpertMap map_with_replicas() {
  return ExpertMap::from_placement(10, {{0, 1, 2}, {3, 4, 5, 0}, {6, 7, 1, 2}, {8, 9, 0, 4}},
                                   {{1, 7, 1}, {1, 3, 1, 2}, {1, 1, 2, 4}, {1, 1, 1, 1}});
}

StepShape shape_with_copies_on(RankId lost) {
  constexpr std::int32_t kRanks = 4;
  std::vector<std::vector<ExpertId>> placement(kRanks);
  for (std::int32_t expert = 0; expert < 9; ++expert)
    placement[static_cast<std::size_t>(expert % kRanks)].emplace_back(expert);
  for (const std::int32_t expert : {1, 4}) placement[lost.index()].emplace_back(expert);
  return {.map = ExpertMap::from_placement(9, placement)};
}

ShuffleCase draw_step(std::uint64_t seed, const StepShape& shape, const std::vector<std::int64_t>& num_tokens) {
  std::mt19937_64 generator(seed);
  Dice dice(generator);
  ShuffleCase step{{},
                   seed,
                   {Topology::single_node(shape.map.num_ranks()), shape.map, shape.plan(), shape.topk, {}},
                   shape.options(),
                   {.routing = Way::Spot::allocated, .is_packed = shape.is_packed}};
  for (const std::int64_t tokens : num_tokens) {
    RankRouting& routing = step.routing.ranks.emplace_back();
    for (std::int64_t token = 0; token < tokens; ++token) {
      const auto order = dice.permutation(shape.map.num_experts());
      for (std::int32_t choice = 0; choice < shape.topk; ++choice) {
        routing.experts.push_back(dice.one_in(9) ? -1 : order[static_cast<std::size_t>(choice)]);
        routing.weights.push_back(dice.weight());
      }
    }
  }
  const RandomCase& routed = step.routing;
  step.draw({routed.routings(), routed.map, routed.topology, routed.options, step.options}, shape.dtype, dice);
  return step;
}

ShuffleCase without_ranks(const ShuffleCase& step, const std::vector<RankId>& lost) {
  ShuffleCase rest = step;
  for (const RankId rank : lost) {
    rest.routing.ranks[rank.index()] = {};
    rest.x[rank.index()] = HostRows(step.options.dtype, 0, step.options.hidden);
  }
  expect_as_if(rest, without_lost_copies(rest.routing, lost));
  return rest;
}

ShuffleCase naming_twice(const ShuffleCase& step) {
  ShuffleCase twice = step;
  RandomCase routed = step.routing;
  for (std::size_t rank = 0; rank < routed.ranks.size(); ++rank)
    for (std::size_t entry = 0; entry < routed.ranks[rank].experts.size(); ++entry)
      if (entry % static_cast<std::size_t>(routed.topk) % 2 == 1) {
        routed.ranks[rank].experts[entry] = -1;
        twice.routing.ranks[rank].experts[entry] = twice.routing.ranks[rank].experts[entry - 1];
      }
  expect_as_if(twice, routed);
  return twice;
}

Engine make_engine(World& world, const Place& place, const StepShape& shape, std::chrono::milliseconds deadline) {
  EngineOptions options = shape.options();
  options.deadline = deadline;
  return {world, place.options(options, small_device(shape.max_tokens))};
}

void take(World& world, Engine& engine, const ShuffleCase& step, const Caller& caller) {
  RankOfCase rank(world, engine, step, caller);
  rank.dispatch()();
  rank.combine()();
}

}  // namespace shunt::test
