// Random routings, maps and options for property tests.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "shunt/expert_map.hpp"
#include "shunt/plan.hpp"
#include "shunt/routing.hpp"
#include "shunt/topology.hpp"

namespace shunt::test {

struct RankRouting {
  std::vector<std::int32_t> experts;
  std::vector<float> weights;
};

/// What n ranks bring to one collective plan call. Owns what the routings view.
struct RandomCase {
  Topology topology;
  ExpertMap map;
  PlanOptions options;
  std::int32_t topk;
  std::vector<RankRouting> ranks;

  [[nodiscard]] Routing routing(RankId rank) const {
    return {ranks[rank.index()].experts, ranks[rank.index()].weights, topk};
  }
  [[nodiscard]] std::vector<Routing> routings() const;
};

/// The most a case may have of each, or the least; small limits make small cases, so that a property test can shrink.
struct CaseLimits {
  std::int32_t ranks = 8;
  std::int32_t nodes = 3;
  std::int32_t experts = 40;
  std::int32_t topk = 12;
  std::int32_t tokens = 24;
  std::int32_t least_topk = 1;
};

/// Covers nodes that don't follow rank order, ranks without experts or tokens, replicas with shares, drops, missing
/// weights, alignment, capacity, every layout. Equal generator states and limits give equal cases.
RandomCase random_case(std::mt19937_64& generator, const CaseLimits& limits = {});

/// On these ranks and nodes, so that many cases can share a world; limits.ranks and limits.nodes do not count.
RandomCase random_case(std::mt19937_64& generator, const Topology& topology, const CaseLimits& limits = {});

}  // namespace shunt::test
