// Assignment of ranks to nodes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shunt/ids.hpp"

namespace shunt {

/// Immutable. Nodes may be virtual: declared on one machine, they change the reduction tree and the traffic counts
/// exactly as real ones do.
class Topology {
 public:
  static constexpr std::int32_t kMaxRanks = 1 << 20;
  /// On one machine, every rank maps every other rank's segment and holds two descriptors for it.
  static constexpr std::int32_t kMaxRanksPerHost = 4096;

  static Topology single_node(std::int32_t num_ranks);

  /// Divides the ranks, in order, into num_nodes runs that differ by at most one rank. Throws Error(invalid_argument)
  /// for more than kMaxRanks ranks, and for nodes without a rank.
  static Topology virtual_nodes(std::int32_t num_ranks, std::int32_t num_nodes);

  /// nodes[rank]; every node from 0 to the largest must occur.
  static Topology from_nodes(std::vector<NodeId> nodes);

  /// Reads JSON such as {"nodes": [[0, 1], [2, 3]]}, which lists the ranks of each node. Each rank from 0 to the
  /// largest occurs once. Throws Error(invalid_argument) that names the file, and the line or key that is wrong.
  static Topology from_file(const std::string& path);

  /// The topology of these ranks only, in this order. Ranks of one node stay on one node; nodes are renumbered.
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
  /// The rank that represents `rank` on a node: the one with the same index there, modulo the node's size.
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
