// Which rank lives on which node.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shunt/ids.hpp"

namespace shunt {

/// Immutable. Nodes may be virtual: declared on one host, they change the reduction tree and the traffic counts
/// exactly as real ones would.
class Topology {
 public:
  static constexpr std::int32_t kMaxRanks = 1 << 20;
  /// On one host every rank maps every other's segment and holds two descriptors of it.
  static constexpr std::int32_t kMaxRanksPerHost = 4096;

  static Topology single_node(std::int32_t num_ranks);

  /// Ranks in order, in num_nodes runs that differ by at most one rank. Throws Error(invalid_argument) for more than
  /// kMaxRanks, and for nodes without a rank.
  static Topology virtual_nodes(std::int32_t num_ranks, std::int32_t num_nodes);

  /// nodes[rank]; every node from 0 to the largest must occur.
  static Topology from_nodes(std::vector<NodeId> nodes);

  /// Read from JSON: {"nodes": [[0, 1], [2, 3]]}, the ranks of each node. Each rank from 0 to the largest stands there
  /// once. Throws Error(invalid_argument) that names the file, and the line or the key that is wrong.
  static Topology from_file(const std::string& path);

  /// The topology of these ranks alone, in this order; nodes keep theirs and are numbered anew.
  [[nodiscard]] Topology subset(std::span<const RankId> ranks) const;

  [[nodiscard]] std::int32_t num_ranks() const { return static_cast<std::int32_t>(node_.size()); }
  [[nodiscard]] std::int32_t num_nodes() const { return num_nodes_; }
  [[nodiscard]] NodeId node(RankId rank) const { return node_[rank.index()]; }
  [[nodiscard]] std::span<const NodeId> nodes() const { return node_; }
  /// A node's ranks, ascending.
  [[nodiscard]] std::span<const RankId> ranks(NodeId node) const {
    const auto begin = first_rank_[node.index()];
    return std::span(ranks_).subspan(begin, first_rank_[node.index() + 1] - begin);
  }
  /// The rank that stands for `rank` on a node: the one of the same index there, counted round where the node is
  /// smaller.
  [[nodiscard]] RankId counterpart(RankId rank, NodeId node) const {
    const auto there = ranks(node);
    return there[index_in_node_[rank.index()] % there.size()];
  }

  /// Equal topologies have equal hashes on every rank.
  [[nodiscard]] std::uint64_t hash() const;

 private:
  std::vector<NodeId> node_;  // by rank
  std::int32_t num_nodes_ = 0;
  std::vector<RankId> ranks_;               // by node
  std::vector<std::size_t> first_rank_;     // [nodes + 1], in ranks_
  std::vector<std::size_t> index_in_node_;  // by rank
};

}  // namespace shunt
