#include "plan/flows.hpp"

namespace shunt {

std::vector<std::vector<std::uint32_t>> tokens_of_far_nodes(const PlanData& plan) {
  std::vector<std::vector<std::uint32_t>> tokens(static_cast<std::size_t>(plan.topology.num_nodes()));
  for (std::int64_t token = 0; token < plan.num_tokens; ++token)
    for (const Target& target : plan.targets_of(token)) {
      if (plan.is_near(target.rank)) continue;
      auto& of_node = tokens[plan.topology.node(target.rank).index()];
      if (of_node.empty() || of_node.back() != token) of_node.push_back(static_cast<std::uint32_t>(token));
    }
  return tokens;
}

std::vector<OutFlow> split_flows(const PlanData& plan, const std::vector<std::vector<std::uint32_t>>& tokens,
                                 const FlowShares& shares) {
  std::vector<OutFlow> flows;
  for (std::size_t node = 0; node < tokens.size(); ++node) {
    if (tokens[node].empty()) continue;
    const auto forwarders = plan.topology.ranks(NodeId(node));
    std::vector<OutFlow> by_rank(static_cast<std::size_t>(plan.topology.num_ranks()));
    const auto taken_by = spread_flow(shares, plan.self, forwarders);
    for (std::size_t i = 0; i < tokens[node].size(); ++i)
      by_rank[taken_by[i].index()].tokens.push_back(tokens[node][i]);
    for (const RankId forwarder : forwarders) {
      OutFlow& flow = by_rank[forwarder.index()];
      flow.forwarder = forwarder;
      if (!flow.tokens.empty()) flows.push_back(std::move(flow));
    }
  }
  return flows;
}

FlowShares even_shares(const PlanData& plan, const std::vector<std::vector<std::uint32_t>>& tokens) {
  FlowShares shares(plan.topology.num_ranks());
  for (std::size_t node = 0; node < tokens.size(); ++node) {
    const auto forwarders = plan.topology.ranks(NodeId(node));
    for (std::size_t i = 0; i < forwarders.size(); ++i)
      shares.at(plan.self, forwarders[i]) = static_cast<std::uint32_t>(tokens[node].size() / forwarders.size() +
                                                                       (i < tokens[node].size() % forwarders.size()));
  }
  return shares;
}

}  // namespace shunt
