#include "plan/balance.hpp"

#include <algorithm>

namespace shunt {
namespace {

/// How many more tokens each rank of one node may take in.
class Room {
 public:
  Room(std::span<const RankId> ranks, std::uint64_t total) : ranks_(ranks) {
    for (std::size_t i = 0; i < ranks.size(); ++i) left_.push_back(total / ranks.size() + (i < total % ranks.size()));
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

}  // namespace

FlowShares balance_flows(const GlobalCounts& counts, const Topology& topology, std::span<const HostId> hosts) {
  FlowShares shares(topology.num_ranks());
  for (std::int32_t n = 0; n < topology.num_nodes(); ++n) {
    const NodeId node(n);
    const auto flow = [&](RankId source) {
      if (hosts[source.index()] == hosts[topology.ranks(node).front().index()]) return std::uint32_t{0};
      return counts.tokens_per_node[source.index() * static_cast<std::size_t>(counts.num_nodes) + node.index()];
    };
    std::uint64_t total = 0;
    for (std::int32_t rank = 0; rank < topology.num_ranks(); ++rank) total += flow(RankId(rank));

    Room room(topology.ranks(node), total);
    std::vector<std::uint32_t> left;
    for (std::int32_t r = 0; r < topology.num_ranks(); ++r) {
      const RankId source(r), forwarder = topology.counterpart(source, node);
      const std::uint32_t taken = room.take(forwarder, flow(source));
      shares.at(source, forwarder) += taken;
      left.push_back(flow(source) - taken);
    }
    for (const RankId forwarder : topology.ranks(node))
      for (std::size_t source = 0; source < left.size(); ++source) {
        const std::uint32_t taken = room.take(forwarder, left[source]);
        shares.at(RankId(source), forwarder) += taken;
        left[source] -= taken;
      }
  }
  return shares;
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

}  // namespace shunt
