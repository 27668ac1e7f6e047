#include "plan/counts.hpp"

#include <algorithm>
#include <numeric>

#include "core/fail.hpp"

namespace shunt {
namespace {

// Bounds on the number of distinct tokens over several parts: at least that of the largest part, at most their sum.
struct Bounds {
  std::uint64_t least = 0;
  std::uint64_t most = 0;

  void add(std::uint32_t part) {
    least = std::max<std::uint64_t>(least, part);
    most += part;
  }
  [[nodiscard]] bool hold(std::uint64_t tokens) const { return least <= tokens && tokens <= most; }
};

}  // namespace

SourceCounts::SourceCounts(const ExpertMap& map, const Topology& topology)
    : rows(static_cast<std::size_t>(map.num_physical())),
      tokens_per_rank(static_cast<std::size_t>(topology.num_ranks())),
      tokens_per_node(static_cast<std::size_t>(topology.num_nodes())) {}

std::span<const std::uint32_t> SourceCounts::rows_of(RankId rank, const ExpertMap& map) const {
  return std::span(rows).subspan(map.first_physical(rank).index(), static_cast<std::size_t>(map.num_local(rank)));
}

std::uint64_t SourceCounts::rows_for(RankId rank, const ExpertMap& map) const {
  const auto rows_there = rows_of(rank, map);
  return std::accumulate(rows_there.begin(), rows_there.end(), std::uint64_t{0});
}

SourceCounts count(const Demand& demand, const ExpertMap& map, const Topology& topology) {
  SourceCounts counts(map, topology);
  const bool has_one_node = topology.num_nodes() == 1;
  for (std::size_t token = 0; token < demand.num_tokens(); ++token) {
    // Tree order keeps the entries of a rank, and of a node, adjacent, so each change starts a new one.
    RankId last_rank;
    NodeId last_node;
    for (const DemandEntry entry : demand.entries_of(token)) {
      const RankId rank = map.rank(entry.expert);
      const NodeId node = topology.node(rank);
      ++counts.rows[entry.expert.index()];
      counts.tokens_per_rank[rank.index()] += rank != last_rank;
      // A single counter would make each entry wait for the previous one, which cost a fifth of the counting time.
      if (!has_one_node) counts.tokens_per_node[node.index()] += node != last_node;
      last_rank = rank;
      last_node = node;
    }
    counts.routed_tokens += last_rank.valid();
  }
  if (has_one_node) counts.tokens_per_node[0] = counts.routed_tokens;
  return counts;
}

void check_counts(const SourceCounts& counts, const ExpertMap& map, const Topology& topology, RankId source,
                  RankId self) {
  std::vector<Bounds> of_node(static_cast<std::size_t>(topology.num_nodes()));
  for (std::int32_t r = 0; r < topology.num_ranks(); ++r) {
    const RankId rank(r);
    const std::uint32_t tokens = counts.tokens_per_rank[rank.index()];
    Bounds of_rank;
    for (const std::uint32_t rows : counts.rows_of(rank, map)) of_rank.add(rows);
    if (!of_rank.hold(tokens))
      fail_because_of(source, "plan: rank {} sent rank {} counts that contradict each other: {} tokens for rank {}",
                      source, self, tokens, rank);
    of_node[topology.node(rank).index()].add(tokens);
  }
  Bounds of_all;
  for (std::size_t node = 0; node < of_node.size(); ++node) {
    const std::uint32_t tokens = counts.tokens_per_node[node];
    if (!of_node[node].hold(tokens))
      fail_because_of(source, "plan: rank {} sent rank {} counts that contradict each other: {} tokens for node {}",
                      source, self, tokens, node);
    of_all.add(tokens);
  }
  if (!of_all.hold(counts.routed_tokens))
    fail_because_of(source, "plan: rank {} sent rank {} counts that contradict each other: {} routed tokens", source,
                    self, counts.routed_tokens);
}

GlobalCounts empty_counts(const ExpertMap& map, const Topology& topology) {
  GlobalCounts all;
  all.num_ranks = topology.num_ranks();
  all.num_physical = map.num_physical();
  all.num_nodes = topology.num_nodes();
  const auto ranks = static_cast<std::size_t>(all.num_ranks);
  all.rows.reserve(ranks * static_cast<std::size_t>(all.num_physical));
  all.tokens_per_rank.reserve(ranks * ranks);
  all.tokens_per_node.reserve(ranks * static_cast<std::size_t>(all.num_nodes));
  all.routed_tokens.reserve(ranks);
  return all;
}

void append(GlobalCounts& all, const SourceCounts& counts) {
  all.rows.insert(all.rows.end(), counts.rows.begin(), counts.rows.end());
  all.tokens_per_rank.insert(all.tokens_per_rank.end(), counts.tokens_per_rank.begin(), counts.tokens_per_rank.end());
  all.tokens_per_node.insert(all.tokens_per_node.end(), counts.tokens_per_node.begin(), counts.tokens_per_node.end());
  all.routed_tokens.push_back(counts.routed_tokens);
}

void clamp_rows(GlobalCounts& counts, std::int64_t capacity) {
  const auto num_physical = static_cast<std::size_t>(counts.num_physical);
  std::vector<std::int64_t> room(num_physical, capacity);
  for (std::size_t i = 0; i < counts.rows.size(); ++i) {
    auto& left = room[i % num_physical];
    counts.rows[i] = static_cast<std::uint32_t>(std::min<std::int64_t>(counts.rows[i], left));
    left -= counts.rows[i];
  }
}

void check_kept(const GlobalCounts& kept, const GlobalCounts& clamped, RankId self) {
  const auto [differs, expected] = std::mismatch(kept.rows.begin(), kept.rows.end(), clamped.rows.begin());
  if (differs == kept.rows.end()) return;
  const auto index = static_cast<std::size_t>(differs - kept.rows.begin());
  const auto num_physical = static_cast<std::size_t>(kept.num_physical);
  const RankId source(index / num_physical);
  fail_because_of(source, "plan: rank {} keeps {} rows for physical expert {}, rank {} grants it {}", source, *differs,
                  index % num_physical, self, *expected);
}

}  // namespace shunt
