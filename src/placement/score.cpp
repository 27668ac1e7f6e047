#include "placement/score.hpp"

#include <algorithm>
#include <numeric>

#include "plan/counts.hpp"
#include "plan/demand.hpp"
#include "shunt/routing.hpp"

namespace shunt::placement {
namespace {

/// The planner's counts if each rank brings its tokens.
GlobalCounts count_all(const RoutedTokens& tokens, const ExpertMap& map, const Topology& topology) {
  std::vector<std::vector<std::int32_t>> experts(static_cast<std::size_t>(topology.num_ranks()));
  for (std::size_t token = 0; token < tokens.num_tokens(); ++token) {
    auto& of_source = experts[static_cast<std::size_t>(tokens.sources[token])];
    for (const std::uint16_t expert : tokens.experts_of(token))
      of_source.push_back(expert == RoutedTokens::kDropped ? -1 : static_cast<std::int32_t>(expert));
  }
  GlobalCounts counts = empty_counts(map, topology);
  for (std::size_t source = 0; source < experts.size(); ++source) {
    const Routing routing{.experts = experts[source], .weights = {}, .topk = tokens.topk};
    append(counts, count(read_demand(routing, map, topology, RankId(source)), map, topology));
    experts[source] = {};
  }
  return counts;
}

double sum(const std::vector<std::uint32_t>& values) {
  return static_cast<double>(std::accumulate(values.begin(), values.end(), std::uint64_t{0}));
}

/// Rows per link if every source brings tokens_per_rank tokens.
struct LinkRows {
  std::vector<double> near_sent, near_received;  // [ranks]
  std::vector<double> far_sent, far_received;    // [nodes]

  LinkRows(const GlobalCounts& counts, const Topology& topology, std::int64_t tokens_per_rank)
      : near_sent(static_cast<std::size_t>(topology.num_ranks())),
        near_received(near_sent.size()),
        far_sent(static_cast<std::size_t>(topology.num_nodes())),
        far_received(far_sent.size()) {
    const std::size_t ranks = near_sent.size(), nodes = far_sent.size();
    std::vector<double> handed_out(nodes);
    for (std::size_t source = 0; source < ranks; ++source) {
      if (counts.routed_tokens[source] == 0) continue;
      const double scale = static_cast<double>(tokens_per_rank) / counts.routed_tokens[source];
      const std::size_t home = topology.node(RankId(source)).index();
      for (std::size_t node = 0; node < nodes; ++node) {
        if (node == home) continue;
        const double rows = scale * counts.tokens_per_node[source * nodes + node];
        far_sent[home] += rows;
        far_received[node] += rows;
      }
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const double rows = scale * counts.tokens_per_rank[source * ranks + rank];
        const std::size_t node = topology.node(RankId(rank)).index();
        if (node == home) {
          near_sent[source] += rank == source ? 0 : rows;
          near_received[rank] += rank == source ? 0 : rows;
        } else {
          // A forwarder keeps the rows for itself.
          const auto here = static_cast<double>(topology.ranks(NodeId(node)).size());
          near_received[rank] += rows * (here - 1) / here;
          handed_out[node] += rows * (here - 1) / here;
        }
      }
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const NodeId node = topology.node(RankId(rank));
      near_sent[rank] += handed_out[node.index()] / static_cast<double>(topology.ranks(node).size());
    }
  }

  [[nodiscard]] double busiest_s(const ShuffleCost& cost) const {
    const auto most = [](const std::vector<double>& a, const std::vector<double>& b) {
      return std::max(*std::max_element(a.begin(), a.end()), *std::max_element(b.begin(), b.end()));
    };
    return std::max(most(near_sent, near_received) * cost.near_s_per_row,
                    most(far_sent, far_received) * cost.far_s_per_row);
  }
};

std::vector<double> loads(const GlobalCounts& counts, const ExpertMap& map) {
  std::vector<double> rows(static_cast<std::size_t>(map.num_ranks()));
  for (std::size_t i = 0; i < counts.rows.size(); ++i)
    rows[map.rank(PhysicalId(i % static_cast<std::size_t>(map.num_physical()))).index()] += counts.rows[i];
  const double mean = std::accumulate(rows.begin(), rows.end(), 0.0) / static_cast<double>(rows.size());
  for (double& each : rows) each = mean > 0 ? each / mean : 1;
  return rows;
}

}  // namespace

ShuffleCost ShuffleCost::of(const Cluster& cluster, std::size_t row_bytes, std::int64_t tokens_per_rank) {
  const auto bytes = static_cast<double>(row_bytes);
  return {bytes / cluster.near_bytes_per_s, bytes / cluster.far_bytes_per_s, cluster.all_to_all_s, tokens_per_rank};
}

MapFigures score(const RoutedTokens& tokens, const ExpertMap& map, const Topology& topology, const ShuffleCost& cost) {
  const GlobalCounts counts = count_all(tokens, map, topology);
  const double routed = std::max(1.0, sum(counts.routed_tokens));
  MapFigures figures;
  figures.c_t = sum(counts.tokens_per_rank) / routed;
  figures.c_t_node = sum(counts.tokens_per_node) / routed;
  figures.rank_load = loads(counts, map);
  figures.load = *std::max_element(figures.rank_load.begin(), figures.rank_load.end());
  const LinkRows rows(counts, topology, cost.tokens_per_rank);
  figures.estimated_ms = 2e3 * (cost.latency_s + rows.busiest_s(cost));
  return figures;
}

}  // namespace shunt::placement
