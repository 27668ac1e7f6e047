// Flows to far nodes: which ranks of a node receive a source's tokens (its forwarders). All ranks compute the same
// choice from the counts. It balances links and never changes a result.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan_data.hpp"
#include "shunt/topology.hpp"

namespace shunt {

/// [source, forwarder]: the number of tokens that a source sends through a forwarder, which distributes them within its
/// own node.
class FlowShares {
 public:
  explicit FlowShares(std::int32_t num_ranks)
      : num_ranks_(static_cast<std::size_t>(num_ranks)), tokens_(num_ranks_ * num_ranks_) {}

  std::uint32_t& at(RankId source, RankId forwarder) {
    return tokens_[source.index() * num_ranks_ + forwarder.index()];
  }
  [[nodiscard]] std::uint32_t at(RankId source, RankId forwarder) const {
    return tokens_[source.index() * num_ranks_ + forwarder.index()];
  }

 private:
  std::size_t num_ranks_;
  std::vector<std::uint32_t> tokens_;
};

// `tokens_per_node` is [ranks, nodes]: distinct tokens of each source for each node.

/// All NICs of a node receive the same number of tokens from other machines, to within one, and so do the ranks of a
/// NIC. A source's own counterpart is preferred, so that few flows are split.
FlowShares balance_flows(std::span<const std::uint32_t> tokens_per_node, const Topology& topology,
                         const Wiring& wiring);

/// FUSCO's rotation, for comparison: each node's ranks are sorted by what they send and rotated by the node's number;
/// ranks at equal positions serve each other. It considers only the sending side and never splits a flow.
FlowShares rotate_flows(std::span<const std::uint32_t> tokens_per_node, const Topology& topology, const Wiring& wiring);

FlowShares choose_flows(Forwarders forwarders, std::span<const std::uint32_t> tokens_per_node, const Topology& topology,
                        const Wiring& wiring);

/// Tokens on the busiest NIC: what its ranks send to other machines or, if more, receive from them.
std::uint64_t heaviest_link(const FlowShares& shares, const Wiring& wiring);

/// Lower bound on heaviest_link() over all choices of forwarders: sources send their own tokens, and the NICs of a node
/// together receive all tokens for it.
std::uint64_t least_heaviest_link(std::span<const std::uint32_t> tokens_per_node, const Topology& topology,
                                  const Wiring& wiring);

/// The forwarder of each token of the flow from one source to one node. Shares are spread evenly over the flow, so that
/// all forwarders are busy from start to end.
std::vector<RankId> spread_flow(const FlowShares& shares, RankId source, std::span<const RankId> forwarders);

/// By node: the tokens that have targets there, ascending; empty for near nodes.
std::vector<std::vector<std::uint32_t>> tokens_of_far_nodes(const PlanData& plan);

/// Flows with at least one token. `tokens` is the result of tokens_of_far_nodes(), and this rank's shares add up to it.
std::vector<OutFlow> split_flows(const PlanData& plan, const std::vector<std::vector<std::uint32_t>>& tokens,
                                 const FlowShares& shares);

/// Even shares for this rank only, for `padded`, where the other ranks' counts are unknown.
FlowShares even_shares(const PlanData& plan, const std::vector<std::vector<std::uint32_t>>& tokens);

}  // namespace shunt
