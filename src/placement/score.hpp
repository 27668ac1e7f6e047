// The cost of a map on a layer's tokens, counted with the planner's own counter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/cluster.hpp"
#include "placement/routed_tokens.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/topology.hpp"

namespace shunt::placement {

/// The cost of rows on a cluster's links. A shuffle is a dispatch and a combine, which moves the same rows back.
struct ShuffleCost {
  double near_s_per_row = 0;  ///< a rank's link to the others of its node, send or receive
  double far_s_per_row = 0;   ///< a node's NICs together, send or receive
  double latency_s = 0;       ///< of one dispatch or combine
  std::int64_t tokens_per_rank = 4096;

  static ShuffleCost of(const Cluster& cluster, std::size_t row_bytes, std::int64_t tokens_per_rank);
};

struct MapFigures {
  double c_t = 0;       ///< mean number of distinct ranks per token
  double c_t_node = 0;  ///< mean number of distinct nodes per token
  double load = 0;      ///< rows of the busiest rank over the mean
  double estimated_ms = 0;
  std::vector<double> rank_load;  ///< [ranks]: rows over the mean
};

/// Counts one row per (token, rank) inside a node and per (token, node) between nodes; forwarders distribute evenly
/// what comes from another node. Every source sends the same number of tokens. The time is that of the busiest link,
/// send or receive, in both directions.
MapFigures score(const RoutedTokens& tokens, const ExpertMap& map, const Topology& topology, const ShuffleCost& cost);

}  // namespace shunt::placement
