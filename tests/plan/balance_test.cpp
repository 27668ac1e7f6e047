#include "plan/balance.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <random>

namespace shunt {
namespace {

struct Case {
  Topology topology;
  Wiring wiring;                               // one machine per node
  std::vector<std::uint32_t> tokens_per_node;  // [ranks, nodes]

  [[nodiscard]] std::uint32_t flow(RankId source, NodeId node) const {
    if (topology.node(source) == node) return 0;
    return tokens_per_node[source.index() * static_cast<std::size_t>(topology.num_nodes()) + node.index()];
  }
};

/// tokens(source, node): the number of tokens that each rank has for each node.
template <class Tokens>
Case make_case(
    const Topology& topology, const Tokens& tokens,
    const std::function<NicId(RankId)>& nic = [](RankId rank) { return NicId(rank.value); }) {
  Case made{topology, {}, {}};
  for (std::int32_t rank = 0; rank < topology.num_ranks(); ++rank) {
    made.wiring.add(HostId(topology.node(RankId(rank)).value), nic(RankId(rank)));
    for (std::int32_t node = 0; node < topology.num_nodes(); ++node)
      made.tokens_per_node.push_back(tokens(RankId(rank), NodeId(node)));
  }
  return made;
}

Case random_case(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto num_ranks = static_cast<std::int32_t>(2 + random() % 15);
  const auto num_nodes = static_cast<std::int32_t>(1 + random() % std::min(num_ranks, 5));
  const std::uint64_t most = seed % 3 == 0 ? 5 : 5000;
  const Topology topology = Topology::virtual_nodes(num_ranks, num_nodes);
  const auto nics_per_host = static_cast<std::int32_t>(1 + random() % 4);
  return make_case(
      topology, [&](RankId, NodeId) { return random() % 4 == 0 ? 0u : static_cast<std::uint32_t>(random() % most); },
      [&](RankId rank) { return NicId(topology.node(rank).value * nics_per_host + rank.value % nics_per_host); });
}

constexpr std::uint64_t kSeeds = 300;

TEST(Balance, EveryTokenTakesOneForwarderOfItsNode) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Case each = random_case(seed);
    for (const FlowShares& shares : {balance_flows(each.tokens_per_node, each.topology, each.wiring),
                                     rotate_flows(each.tokens_per_node, each.topology, each.wiring)})
      for (std::int32_t source = 0; source < each.topology.num_ranks(); ++source)
        for (std::int32_t node = 0; node < each.topology.num_nodes(); ++node) {
          std::uint32_t total = 0;
          for (const RankId rank : each.topology.ranks(NodeId(node))) total += shares.at(RankId(source), rank);
          ASSERT_EQ(total, each.flow(RankId(source), NodeId(node))) << "seed " << seed;
        }
  }
}

TEST(Balance, NoLinkIsHeavierThanTheBestChoiceAllows) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Case each = random_case(seed);
    const auto heaviest = heaviest_link(balance_flows(each.tokens_per_node, each.topology, each.wiring), each.wiring);
    ASSERT_EQ(heaviest, least_heaviest_link(each.tokens_per_node, each.topology, each.wiring)) << "seed " << seed;
    ASSERT_LE(heaviest, heaviest_link(rotate_flows(each.tokens_per_node, each.topology, each.wiring), each.wiring));
  }
}

TEST(Balance, SplitsWhatRotationCantSplit) {
  // Ranks 0 and 1 share a node; all tokens of node 1 come from its first rank.
  const Case skewed = make_case(Topology::virtual_nodes(4, 2), [](RankId source, NodeId node) {
    return source == RankId(2) && node == NodeId(0) ? 1000u : 0u;
  });
  const FlowShares shares = balance_flows(skewed.tokens_per_node, skewed.topology, skewed.wiring);
  EXPECT_EQ(shares.at(RankId(2), RankId(0)), 500u);
  EXPECT_EQ(shares.at(RankId(2), RankId(1)), 500u);
}

TEST(Balance, NicsReceiveEquallyMuchHoweverManyRanksShareThem) {
  const Case shared = make_case(
      Topology::from_nodes({NodeId(0), NodeId(1), NodeId(1), NodeId(1)}),
      [](RankId source, NodeId node) { return source == RankId(0) && node == NodeId(1) ? 1000u : 0u; },
      [](RankId rank) { return NicId(std::min(rank.value, 2)); });
  const FlowShares shares = balance_flows(shared.tokens_per_node, shared.topology, shared.wiring);
  EXPECT_EQ(shares.at(RankId(0), RankId(1)), 500u);
  EXPECT_EQ(shares.at(RankId(0), RankId(2)), 250u);
  EXPECT_EQ(shares.at(RankId(0), RankId(3)), 250u);
}

TEST(Balance, NodesOfOneMachineNeedNoForwarder) {
  Case two_nodes = make_case(Topology::virtual_nodes(4, 2), [](RankId, NodeId) { return 10u; });
  two_nodes.wiring.hosts.assign(4, HostId(0));
  const FlowShares shares = balance_flows(two_nodes.tokens_per_node, two_nodes.topology, two_nodes.wiring);
  EXPECT_EQ(heaviest_link(shares, two_nodes.wiring), 0u);
}

// Machine 0 has nodes 0 and 1 and one NIC, which receives for both.
TEST(Balance, NodesThatShareANicShareItsBound) {
  Case shared = make_case(Topology::virtual_nodes(4, 4),
                          [](RankId source, NodeId node) { return source.value >= 2 && node.value < 2 ? 10u : 0u; });
  shared.wiring.hosts = {HostId(0), HostId(0), HostId(1), HostId(2)};
  shared.wiring.nics = {NicId(0), NicId(0), NicId(1), NicId(2)};
  EXPECT_EQ(heaviest_link(balance_flows(shared.tokens_per_node, shared.topology, shared.wiring), shared.wiring), 40u);
  EXPECT_EQ(least_heaviest_link(shared.tokens_per_node, shared.topology, shared.wiring), 40u);
}

TEST(SpreadFlow, KeepsEveryForwarderBusyFromBeginningToEnd) {
  FlowShares shares(4);
  shares.at(RankId(0), RankId(1)) = 300;
  shares.at(RankId(0), RankId(2)) = 100;
  const std::vector<RankId> forwarders = {RankId(1), RankId(2), RankId(3)};
  const auto taken_by = spread_flow(shares, RankId(0), forwarders);
  ASSERT_EQ(taken_by.size(), 400u);
  for (std::size_t begin = 0; begin < 400; begin += 40) {
    const auto count = std::count(taken_by.begin() + static_cast<std::ptrdiff_t>(begin),
                                  taken_by.begin() + static_cast<std::ptrdiff_t>(begin) + 40, RankId(2));
    EXPECT_NEAR(static_cast<double>(count), 10, 1) << begin;
  }
  EXPECT_EQ(std::count(taken_by.begin(), taken_by.end(), RankId(3)), 0);
}

}  // namespace
}  // namespace shunt
