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

/// Every node's ranks take in equally many tokens from other nodes, to within one. A source's own counterpart comes
/// first, so that few flows are split.
FlowShares balance_flows(const GlobalCounts& counts, const Topology& topology, std::span<const HostId> hosts);

/// For one source and one node: which forwarder each of the flow's tokens takes. Shares are spread evenly over the
/// flow, so that all forwarders are busy from its beginning to its end.
std::vector<RankId> spread_flow(const FlowShares& shares, RankId source, std::span<const RankId> forwarders);

}  // namespace shunt
