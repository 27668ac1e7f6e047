#include "shunt/topology.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <limits>

#include "core/fail.hpp"

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

TEST(Topology, RefusesMoreThanTheMaximumOfRanksBeforeAllocating) {
  EXPECT_EQ(Topology::single_node(Topology::kMaxRanksPerHost).num_ranks(), Topology::kMaxRanksPerHost);
  EXPECT_THROW(Topology::single_node(Topology::kMaxRanks + 1), Error);
  EXPECT_THROW(Topology::single_node(std::numeric_limits<std::int32_t>::max()), Error);
  EXPECT_THROW(Topology::from_nodes(std::vector<NodeId>(Topology::kMaxRanks + 1, NodeId(0))), Error);
}

TEST(Topology, RejectsAGapInTheNodes) { EXPECT_THROW(Topology::from_nodes({NodeId(0), NodeId(2)}), Error); }

class TopologyFile : public testing::Test {
 protected:
  ~TopologyFile() override { std::remove(path_.c_str()); }

  Topology read(const std::string& text) {
    std::ofstream(path_) << text;
    return Topology::from_file(path_);
  }
  /// The error for a file of this text, without the file's name.
  std::string error_of(const std::string& text) {
    try {
      read(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), testing::StartsWith(path_ + ":"));
      return std::string(error.what()).substr(path_.size());
    }
    return "accepted";
  }

  std::string path_ = testing::TempDir() + testing::UnitTest::GetInstance()->current_test_info()->name() + ".json";
};

TEST_F(TopologyFile, AssignsRanksToNodes) {
  const Topology topology = read(R"({"nodes": [[3, 0], [1], [2, 4]]})");
  EXPECT_EQ(topology.hash(), Topology::from_nodes({NodeId(0), NodeId(1), NodeId(2), NodeId(0), NodeId(2)}).hash());
}

TEST_F(TopologyFile, IsRefusedWithTheLineOrKeyThatIsWrong) {
  using testing::StartsWith;
  EXPECT_THAT(error_of(""), StartsWith(":1: no JSON"));
  EXPECT_THAT(error_of("{\"nodes\":\n [[0, 1],\n [2, 3}\n"), StartsWith(":3: no JSON"));
  for (const char* text : {"[]", "{}", "7", R"({"nodes": 3})", R"({"nodes": {}})", R"({"nodes": []})"})
    EXPECT_THAT(error_of(text), StartsWith(": expected {\"nodes\"")) << text;
  EXPECT_THAT(error_of(R"({"nodes": [[0]], "hosts": 1})"), StartsWith(": \"hosts\" means nothing"));
  EXPECT_THAT(error_of(R"({"nodes": [[0], 1]})"), StartsWith(": nodes[1]: expected a list"));
  EXPECT_THAT(error_of(R"({"nodes": [[0], []]})"), StartsWith(": nodes[1]: expected a list"));
  EXPECT_THAT(error_of(R"({"nodes": [[0, 1], [1, 2]]})"), StartsWith(": nodes[1][0]: rank 1 is in nodes[0] already"));
  EXPECT_THAT(error_of(R"({"nodes": [[0, 0]]})"), StartsWith(": nodes[0][1]: rank 0 is in nodes[0] already"));
  for (const char* rank : {"-1", "3", "1.5", "\"1\"", "null", "18446744073709551615"})
    EXPECT_THAT(error_of(fmt::format(R"({{"nodes": [[0], [1, {}]]}})", rank)),
                StartsWith(fmt::format(": nodes[1][1]: {}, expected a rank from 0 to 2", rank)));
}

TEST_F(TopologyFile, NamesAFileThatCantBeRead) {
  for (const char* path : {"/nonexistent/nodes.json", "/"}) {
    try {
      Topology::from_file(path);
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::StartsWith(std::string(path) + ": "));
    }
  }
}

TEST(Topology, HashDistinguishesTopologies) {
  EXPECT_EQ(Topology::single_node(4).hash(), Topology::virtual_nodes(4, 1).hash());
  EXPECT_NE(Topology::single_node(4).hash(), Topology::virtual_nodes(4, 2).hash());
  EXPECT_NE(Topology::single_node(4).hash(), Topology::single_node(5).hash());
}

}  // namespace
}  // namespace shunt
