// Which ranks of a far node take a source's tokens in: one choice, made by all ranks alike from the counts. It moves
// load between links and never changes a result.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan_data.hpp"
#include "shunt/topology.hpp"

namespace shunt {

/// Tokens that each source sends through each forwarder, [source, forwarder]; a forwarder hands out inside its own
/// node.
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

// `tokens_per_node` is [ranks, nodes], distinct tokens of each source for each node.

/// Every node's NICs take in equally many tokens from other hosts, to within one, and so do the ranks of each NIC. A
/// source's own counterpart comes first, so that few flows are split.
FlowShares balance_flows(std::span<const std::uint32_t> tokens_per_node, const Topology& topology,
                         const Wiring& wiring);

/// FUSCO's rotation, to compare with: each node's ranks are sorted by what they send and rotated by the node's number;
/// ranks of equal position serve each other. It sees the sending side only and never splits a flow.
FlowShares rotate_flows(std::span<const std::uint32_t> tokens_per_node, const Topology& topology, const Wiring& wiring);

FlowShares choose_flows(Forwarders forwarders, std::span<const std::uint32_t> tokens_per_node, const Topology& topology,
                        const Wiring& wiring);

/// Tokens on the busiest NIC: what its ranks send to other hosts or, if that is more, take in from them.
std::uint64_t heaviest_link(const FlowShares& shares, const Wiring& wiring);

/// No choice of forwarders does better: sources send their own tokens, and a node's NICs together take in all that is
/// meant for it.
std::uint64_t least_heaviest_link(std::span<const std::uint32_t> tokens_per_node, const Topology& topology,
                                  const Wiring& wiring);

/// For one source and one node: which forwarder each of the flow's tokens takes. Shares are spread evenly over the
/// flow, so that all forwarders are busy from its beginning to its end.
std::vector<RankId> spread_flow(const FlowShares& shares, RankId source, std::span<const RankId> forwarders);

}  // namespace shunt
