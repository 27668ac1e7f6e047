#include "support/random_case.hpp"

#include <algorithm>

#include "support/dice.hpp"

namespace shunt::test {
namespace {

Topology random_topology(Dice& dice, const CaseLimits& limits) {
  const std::int32_t ranks = dice.between(1, limits.ranks);
  const std::int32_t nodes = dice.between(1, std::min(ranks, limits.nodes));
  if (dice.one_in(2)) return Topology::virtual_nodes(ranks, nodes);
  std::vector<NodeId> node_of(static_cast<std::size_t>(ranks));
  const auto order = dice.permutation(ranks);
  for (std::int32_t i = 0; i < ranks; ++i)
    node_of[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])] =
        NodeId(i < nodes ? i : dice.between(0, nodes - 1));
  return Topology::from_nodes(node_of);
}

ExpertMap random_map(Dice& dice, std::int32_t experts, std::int32_t ranks) {
  if (dice.one_in(3)) return ExpertMap::contiguous(experts, ranks);
  const std::int32_t replicas_percent = dice.pick({0, 10, 60});
  const std::int32_t most_share = dice.pick({1, 3, ExpertMap::kMaxShare});
  std::vector<std::vector<ExpertId>> placement(static_cast<std::size_t>(ranks));
  ExpertMap::Shares shares(placement.size());
  for (std::int32_t expert = 0; expert < experts; ++expert) {
    const std::int32_t home = dice.between(0, ranks - 1);
    for (std::int32_t rank = 0; rank < ranks; ++rank)
      if (rank == home || dice.between(1, 100) <= replicas_percent) {
        placement[static_cast<std::size_t>(rank)].emplace_back(expert);
        shares[static_cast<std::size_t>(rank)].push_back(dice.between(1, most_share));
      }
  }
  return ExpertMap::from_placement(experts, placement, shares);
}

RankRouting random_routing(Dice& dice, std::int32_t tokens, std::int32_t topk, std::int32_t experts) {
  const std::int32_t drop_percent = dice.pick({0, 0, 15, 90});
  const bool has_weights = !dice.one_in(4);
  RankRouting routing;
  for (std::int32_t token = 0; token < tokens; ++token) {
    const auto order = dice.permutation(std::max(experts, topk));
    for (std::int32_t choice = 0; choice < topk; ++choice) {
      const std::int32_t expert = order[static_cast<std::size_t>(choice)];
      routing.experts.push_back(expert >= experts || dice.between(1, 100) <= drop_percent ? -1 : expert);
      if (has_weights) routing.weights.push_back(dice.weight());
    }
  }
  return routing;
}

PlanOptions random_options(Dice& dice, std::int32_t most_tokens) {
  PlanOptions options;
  options.layout = dice.pick({Layout::expert_major, Layout::token_unique, Layout::padded});
  if (options.layout == Layout::padded) {
    options.max_tokens = std::max(1, most_tokens + dice.between(0, 3));
  } else {
    options.alignment = dice.pick({1, 1, 2, 3, 8});
    if (dice.one_in(3)) options.capacity = dice.between(1, 2 + most_tokens);
    if (dice.one_in(4)) options.forwarders = Forwarders::rotated;
  }
  return options;
}

}  // namespace

std::vector<Routing> RandomCase::routings() const {
  std::vector<Routing> all;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) all.push_back(routing(RankId(rank)));
  return all;
}

RandomCase random_case(std::mt19937_64& generator, const CaseLimits& limits) {
  Dice dice(generator);
  return random_case(generator, random_topology(dice, limits), limits);
}

RandomCase random_case(std::mt19937_64& generator, const Topology& topology, const CaseLimits& limits) {
  Dice dice(generator);
  const std::int32_t experts = dice.between(1, limits.experts);
  const std::int32_t topk = dice.between(limits.least_topk, limits.topk);
  std::vector<RankRouting> ranks;
  std::int32_t most_tokens = 0;
  for (std::int32_t rank = 0; rank < topology.num_ranks(); ++rank) {
    const std::int32_t tokens = dice.one_in(5) ? 0 : dice.between(0, limits.tokens);
    most_tokens = std::max(most_tokens, tokens);
    ranks.push_back(random_routing(dice, tokens, topk, experts));
  }
  const ExpertMap map = random_map(dice, experts, topology.num_ranks());
  return {topology, map, random_options(dice, most_tokens), topk, std::move(ranks)};
}

}  // namespace shunt::test
