#include "placement/routings.hpp"

#include <algorithm>
#include <set>

#include "core/cluster.hpp"
#include "placement/generate.hpp"
#include "shunt/routing_trace.hpp"

namespace shunt::test {

using placement::RoutedTokens;

RoutedTokens random_tokens(std::uint64_t seed, std::int32_t experts, std::int32_t topk, std::size_t tokens,
                           std::int32_t ranks, bool drops) {
  placement::Random random(seed);
  RoutedTokens result{experts, topk, {}, {}};
  const std::size_t groups = 1 + random.below(4);
  for (std::size_t token = 0; token < tokens; ++token) {
    const std::size_t group = random.below(groups);
    std::vector<std::uint16_t> chosen;
    while (std::ssize(chosen) < topk) {
      auto expert = static_cast<std::uint16_t>(random.below(static_cast<std::size_t>(experts)));
      if (random.below(3) > 0 && expert % groups != group) continue;              // mostly from one group
      if (random.below(2) == 0) expert = static_cast<std::uint16_t>(expert / 2);  // low ids are popular
      if (std::find(chosen.begin(), chosen.end(), expert) == chosen.end()) chosen.push_back(expert);
    }
    for (std::uint16_t& expert : chosen)
      if (drops && random.below(5) == 0) expert = RoutedTokens::kDropped;
    result.experts.insert(result.experts.end(), chosen.begin(), chosen.end());
    result.sources.push_back(static_cast<std::int32_t>(random.below(static_cast<std::size_t>(ranks))));
  }
  return result;
}

RoutedTokens generated(const std::string& kind, const placement::PlaceOptions& options, std::int32_t experts,
                       std::size_t tokens, std::uint64_t seed) {
  placement::GenerateOptions generate;
  generate.experts = experts;
  generate.tokens = static_cast<std::int64_t>(tokens);
  generate.groups = options.nodes * options.ranks_per_node;
  generate.seed = seed;
  const auto generator = placement::make_generator(kind, generate, 0);
  RoutedTokens result{experts, generate.topk, {}, std::vector<std::int32_t>(tokens)};
  std::vector<std::int32_t> chosen(static_cast<std::size_t>(generate.topk));
  for (std::size_t token = 0; token < tokens; ++token) {
    generator->draw(chosen);
    for (const std::int32_t expert : chosen) result.experts.push_back(static_cast<std::uint16_t>(expert));
  }
  result.deal_sources(options.nodes * options.ranks_per_node);
  return result;
}

RoutedTokens real_layer(std::int32_t layer, std::int32_t ranks) {
  const RoutingTrace trace = RoutingTrace::open(SHUNT_TEST_DATA "/moe64k8-small.trace");
  const TraceLayer tokens = trace.layer(layer);
  std::vector<std::int32_t> experts(static_cast<std::size_t>(tokens.num_tokens()) *
                                    static_cast<std::size_t>(trace.shape().topk));
  tokens.read_experts(0, experts);
  RoutedTokens result{trace.shape().experts, trace.shape().topk, {}, {}};
  for (const std::int32_t expert : experts) result.experts.push_back(static_cast<std::uint16_t>(expert));
  result.sources.resize(static_cast<std::size_t>(tokens.num_tokens()));
  result.deal_sources(ranks);
  return result;
}

std::int64_t touched_ranks(const RoutedTokens& tokens, const std::vector<std::int32_t>& rank_of) {
  std::int64_t sum = 0;
  for (std::size_t token = 0; token < tokens.num_tokens(); ++token) {
    std::set<std::int32_t> ranks;
    for (const std::uint16_t expert : tokens.experts_of(token))
      if (expert != RoutedTokens::kDropped) ranks.insert(rank_of[expert]);
    sum += std::ssize(ranks);
  }
  return sum;
}

double busiest_load(const RoutedTokens& tokens, const std::vector<std::int32_t>& rank_of, std::int32_t ranks) {
  std::vector<double> rows(static_cast<std::size_t>(ranks));
  double all = 0;
  for (const std::uint16_t expert : tokens.experts)
    if (expert != RoutedTokens::kDropped) {
      ++rows[static_cast<std::size_t>(rank_of[expert])];
      ++all;
    }
  return *std::max_element(rows.begin(), rows.end()) * ranks / all;
}

std::vector<std::int32_t> ranks_of(const ExpertMap& map) {
  std::vector<std::int32_t> rank_of;
  for (std::int32_t expert = 0; expert < map.num_experts(); ++expert)
    rank_of.push_back(map.rank(map.copies(ExpertId(expert)).front()).value);
  return rank_of;
}

placement::PlaceOptions on_ranks(std::int32_t nodes, std::int32_t ranks_per_node, placement::Goal goal) {
  placement::PlaceOptions options;
  options.nodes = nodes;
  options.ranks_per_node = ranks_per_node;
  options.goal = goal;
  options.cost = placement::ShuffleCost::of(Cluster::load("h100"), 7168 * 2, 4096);
  return options;
}

}  // namespace shunt::test
