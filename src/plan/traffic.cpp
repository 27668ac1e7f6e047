#include "shunt/traffic.hpp"

#include <numeric>

#include "plan/count_traffic.hpp"

namespace shunt {
namespace {

std::uint64_t sum(std::span<const std::uint32_t> values) {
  return std::accumulate(values.begin(), values.end(), std::uint64_t{0});
}

PairCounts rank_bytes(const GlobalCounts& counts, std::span<const std::int32_t> first_physical, Layout layout,
                      std::size_t row_bytes) {
  const auto ranks = static_cast<std::size_t>(counts.num_ranks);
  const auto num_physical = static_cast<std::size_t>(counts.num_physical);
  PairCounts bytes(counts.num_ranks);
  for (std::size_t source = 0; source < ranks; ++source)
    for (std::size_t to = 0; to < ranks; ++to) {
      const auto first = static_cast<std::size_t>(first_physical[to]);
      const auto end = static_cast<std::size_t>(first_physical[to + 1]);
      const std::uint64_t rows = layout == Layout::token_unique
                                     ? counts.tokens_per_rank[source * ranks + to]
                                     : sum(std::span(counts.rows).subspan(source * num_physical + first, end - first));
      bytes.at(source, to) = rows * row_bytes;
    }
  return bytes;
}

PairCounts node_bytes(const GlobalCounts& counts, const Topology& topology, std::size_t row_bytes) {
  const auto nodes = static_cast<std::size_t>(counts.num_nodes);
  PairCounts bytes(counts.num_nodes);
  for (std::size_t source = 0; source < topology.nodes().size(); ++source) {
    const std::size_t from = topology.nodes()[source].index();
    for (std::size_t to = 0; to < nodes; ++to)
      if (to != from) bytes.at(from, to) += counts.tokens_per_node[source * nodes + to] * row_bytes;
  }
  return bytes;
}

double mean_ranks_per_token(const GlobalCounts& counts) {
  const std::uint64_t tokens = sum(counts.routed_tokens);
  return tokens == 0 ? 0.0 : static_cast<double>(sum(counts.tokens_per_rank)) / static_cast<double>(tokens);
}

}  // namespace

std::uint64_t PairCounts::total() const { return std::accumulate(counts_.begin(), counts_.end(), std::uint64_t{0}); }

std::uint64_t PairCounts::total_off_diagonal() const {
  std::uint64_t diagonal = 0;
  for (std::size_t i = 0; i < size_; ++i) diagonal += at(i, i);
  return total() - diagonal;
}

Traffic count_traffic(const GlobalCounts& counts, std::span<const std::int32_t> first_physical,
                      const Topology& topology, Layout layout, std::size_t row_bytes) {
  return {.rank_bytes = rank_bytes(counts, first_physical, layout, row_bytes),
          .node_bytes = node_bytes(counts, topology, row_bytes),
          .mean_ranks_per_token = mean_ranks_per_token(counts)};
}

}  // namespace shunt
