#include "shunt/topology.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "shunt/error.hpp"

namespace shunt {
namespace {

TEST(Topology, VirtualNodesDifferByAtMostOneRank) {
  for (std::int32_t ranks : {1, 2, 4, 7, 12}) {
    for (std::int32_t nodes = 1; nodes <= ranks; ++nodes) {
      const Topology topology = Topology::virtual_nodes(ranks, nodes);
      std::vector<int> size(static_cast<std::size_t>(nodes));
      for (const NodeId node : topology.nodes()) ++size[node.index()];
      const auto [least, most] = std::minmax_element(size.begin(), size.end());
      EXPECT_LE(*most - *least, 1) << ranks << " ranks, " << nodes << " nodes";
    }
  }
}

TEST(Topology, RejectsMoreNodesThanRanks) { EXPECT_THROW(Topology::virtual_nodes(2, 3), Error); }

TEST(Topology, RefusesMoreRanksThanAnyHostHoldsBeforeItTakesMemory) {
  EXPECT_EQ(Topology::single_node(Topology::kMaxRanksPerHost).num_ranks(), Topology::kMaxRanksPerHost);
  EXPECT_THROW(Topology::single_node(Topology::kMaxRanks + 1), Error);
  EXPECT_THROW(Topology::single_node(std::numeric_limits<std::int32_t>::max()), Error);
  EXPECT_THROW(Topology::from_nodes(std::vector<NodeId>(Topology::kMaxRanks + 1, NodeId(0))), Error);
}

TEST(Topology, RejectsAGapInTheNodes) { EXPECT_THROW(Topology::from_nodes({NodeId(0), NodeId(2)}), Error); }

TEST(Topology, HashTellsTopologiesApart) {
  EXPECT_EQ(Topology::single_node(4).hash(), Topology::virtual_nodes(4, 1).hash());
  EXPECT_NE(Topology::single_node(4).hash(), Topology::virtual_nodes(4, 2).hash());
  EXPECT_NE(Topology::single_node(4).hash(), Topology::single_node(5).hash());
}

}  // namespace
}  // namespace shunt
