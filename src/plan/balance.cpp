#include "plan/balance.hpp"

#include <algorithm>
#include <map>

namespace shunt {
namespace {

/// The NICs of these ranks, ascending.
std::vector<NicId> nics_of(std::span<const RankId> ranks, const Wiring& wiring) {
  std::vector<NicId> nics;
  for (const RankId rank : ranks) nics.push_back(wiring.nics[rank.index()]);
  std::sort(nics.begin(), nics.end());
  nics.erase(std::unique(nics.begin(), nics.end()), nics.end());
  return nics;
}

/// The i-th part of `total`, split into `count` parts that differ by at most one.
std::uint64_t share(std::uint64_t total, std::size_t count, std::size_t i) {
  return total / count + (i < total % count ? 1 : 0);
}

/// The number of tokens that each rank of one node may still receive.
class Quota {
 public:
  Quota(std::span<const RankId> ranks, const Wiring& wiring, std::uint64_t total) : ranks_(ranks), left_(ranks.size()) {
    const std::vector<NicId> nics = nics_of(ranks, wiring);
    for (std::size_t n = 0; n < nics.size(); ++n) {
      std::vector<std::size_t> users;
      for (std::size_t i = 0; i < ranks.size(); ++i)
        if (wiring.nics[ranks[i].index()] == nics[n]) users.push_back(i);
      for (std::size_t u = 0; u < users.size(); ++u)
        left_[users[u]] = share(share(total, nics.size(), n), users.size(), u);
    }
  }

  std::uint32_t take(RankId rank, std::uint32_t wanted) {
    const auto index = static_cast<std::size_t>(std::find(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
    const auto taken = static_cast<std::uint32_t>(std::min<std::uint64_t>(left_[index], wanted));
    left_[index] -= taken;
    return taken;
  }

 private:
  std::span<const RankId> ranks_;
  std::vector<std::uint64_t> left_;
};

/// Number of tokens of each source for each node on another machine.
class Flows {
 public:
  Flows(std::span<const std::uint32_t> tokens_per_node, const Topology& topology, const Wiring& wiring)
      : tokens_(tokens_per_node), topology_(topology), wiring_(wiring) {}

  [[nodiscard]] std::uint32_t at(RankId source, NodeId node) const {
    if (wiring_.are_near(source, topology_.ranks(node).front())) return 0;
    return tokens_[source.index() * static_cast<std::size_t>(topology_.num_nodes()) + node.index()];
  }
  [[nodiscard]] std::uint64_t from(RankId source) const {
    std::uint64_t total = 0;
    for (std::int32_t node = 0; node < topology_.num_nodes(); ++node) total += at(source, NodeId(node));
    return total;
  }
  [[nodiscard]] std::uint64_t into(NodeId node) const {
    std::uint64_t total = 0;
    for (std::int32_t rank = 0; rank < topology_.num_ranks(); ++rank) total += at(RankId(rank), node);
    return total;
  }

 private:
  std::span<const std::uint32_t> tokens_;
  const Topology& topology_;
  const Wiring& wiring_;
};

}  // namespace

FlowShares balance_flows(std::span<const std::uint32_t> tokens_per_node, const Topology& topology,
                         const Wiring& wiring) {
  const Flows flows(tokens_per_node, topology, wiring);
  FlowShares shares(topology.num_ranks());
  for (std::int32_t n = 0; n < topology.num_nodes(); ++n) {
    const NodeId node(n);
    Quota quota(topology.ranks(node), wiring, flows.into(node));
    std::vector<std::uint32_t> left;
    for (std::int32_t r = 0; r < topology.num_ranks(); ++r) {
      const RankId source(r), forwarder = topology.counterpart(source, node);
      const std::uint32_t taken = quota.take(forwarder, flows.at(source, node));
      shares.at(source, forwarder) += taken;
      left.push_back(flows.at(source, node) - taken);
    }
    for (const RankId forwarder : topology.ranks(node))
      for (std::size_t source = 0; source < left.size(); ++source) {
        if (left[source] == 0) continue;
        const std::uint32_t taken = quota.take(forwarder, left[source]);
        shares.at(RankId(source), forwarder) += taken;
        left[source] -= taken;
      }
  }
  return shares;
}

FlowShares rotate_flows(std::span<const std::uint32_t> tokens_per_node, const Topology& topology,
                        const Wiring& wiring) {
  const Flows flows(tokens_per_node, topology, wiring);
  std::vector<std::vector<RankId>> order;  // by node
  for (std::int32_t n = 0; n < topology.num_nodes(); ++n) {
    const auto ranks = topology.ranks(NodeId(n));
    auto& sorted = order.emplace_back(ranks.begin(), ranks.end());
    std::stable_sort(sorted.begin(), sorted.end(), [&](RankId a, RankId b) { return flows.from(a) > flows.from(b); });
    std::rotate(sorted.begin(), sorted.begin() + n % std::ssize(sorted), sorted.end());
  }
  FlowShares shares(topology.num_ranks());
  for (const auto& sources : order)
    for (std::size_t position = 0; position < sources.size(); ++position)
      for (std::size_t node = 0; node < order.size(); ++node)
        shares.at(sources[position], order[node][position % order[node].size()]) +=
            flows.at(sources[position], NodeId(node));
  return shares;
}

FlowShares choose_flows(Forwarders forwarders, std::span<const std::uint32_t> tokens_per_node, const Topology& topology,
                        const Wiring& wiring) {
  return forwarders == Forwarders::rotated ? rotate_flows(tokens_per_node, topology, wiring)
                                           : balance_flows(tokens_per_node, topology, wiring);
}

std::uint64_t heaviest_link(const FlowShares& shares, const Wiring& wiring) {
  std::vector<std::uint64_t> received(wiring.nics.size());         // by rank
  std::map<NicId, std::pair<std::uint64_t, std::uint64_t>> links;  // sent and received
  for (std::size_t source = 0; source < wiring.nics.size(); ++source) {
    std::uint64_t sent = 0;
    for (std::size_t forwarder = 0; forwarder < wiring.nics.size(); ++forwarder) {
      const std::uint32_t tokens = shares.at(RankId(source), RankId(forwarder));
      sent += tokens;
      received[forwarder] += tokens;
    }
    links[wiring.nics[source]].first += sent;
  }
  for (std::size_t rank = 0; rank < received.size(); ++rank) links[wiring.nics[rank]].second += received[rank];
  std::uint64_t heaviest = 0;
  for (const auto& [nic, link] : links) heaviest = std::max({heaviest, link.first, link.second});
  return heaviest;
}

std::uint64_t least_heaviest_link(std::span<const std::uint32_t> tokens_per_node, const Topology& topology,
                                  const Wiring& wiring) {
  const Flows flows(tokens_per_node, topology, wiring);
  std::map<NicId, std::uint64_t> sent;
  for (std::size_t rank = 0; rank < wiring.nics.size(); ++rank) sent[wiring.nics[rank]] += flows.from(RankId(rank));
  std::uint64_t least = 0;
  for (const auto& [nic, tokens] : sent) least = std::max(least, tokens);
  // A node receives through its own NICs, a machine through the NICs of all its nodes.
  std::map<HostId, std::pair<std::uint64_t, std::vector<RankId>>> hosts;
  for (std::int32_t n = 0; n < topology.num_nodes(); ++n) {
    const auto ranks = topology.ranks(NodeId(n));
    least = std::max(least, share(flows.into(NodeId(n)), nics_of(ranks, wiring).size(), 0));
    auto& [tokens, members] = hosts[wiring.hosts[ranks.front().index()]];
    tokens += flows.into(NodeId(n));
    members.insert(members.end(), ranks.begin(), ranks.end());
  }
  for (const auto& [host, inflow] : hosts)
    least = std::max(least, share(inflow.first, nics_of(inflow.second, wiring).size(), 0));
  return least;
}

std::vector<RankId> spread_flow(const FlowShares& shares, RankId source, std::span<const RankId> forwarders) {
  std::int64_t total = 0;
  for (const RankId forwarder : forwarders) total += shares.at(source, forwarder);
  std::vector<RankId> taken_by;
  std::vector<std::int64_t> owed(forwarders.size());  // in units of 1 / total tokens
  for (std::int64_t token = 0; token < total; ++token) {
    std::size_t most = 0;
    for (std::size_t i = 0; i < forwarders.size(); ++i) {
      owed[i] += shares.at(source, forwarders[i]);
      if (owed[i] > owed[most]) most = i;
    }
    owed[most] -= total;
    taken_by.push_back(forwarders[most]);
  }
  return taken_by;
}

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
