#include "plan/count_sums.hpp"

#include <algorithm>
#include <numeric>

namespace shunt {
namespace {

void add_to(std::vector<std::int64_t>& sums, std::span<const std::uint32_t> counts) {
  for (std::size_t i = 0; i < counts.size(); ++i) sums[i] += counts[i];
}

template <class T>
std::uint64_t sum(std::span<const T> values) {
  return std::accumulate(values.begin(), values.end(), std::uint64_t{0});
}

}  // namespace

CountSums::CountSums(const ExpertMap& map, const Topology& topology, const Wiring& wiring, RankId self, Layout layout)
    : map_(map),
      topology_(topology),
      self_(self),
      layout_(layout),
      has_far_(!wiring.is_one_host()),
      own_(map, topology) {
  rows_.all.resize(own_.rows.size());
  tokens_.all.resize(own_.tokens_per_rank.size());
}

void CountSums::add(const SourceCounts& counts) {
  if (source_ == self_) {
    rows_.before = rows_.all;
    tokens_.before = tokens_.all;
    own_ = counts;
    for (std::size_t rank = 0; rank < counts.tokens_per_rank.size(); ++rank)
      traffic_.sent_rows.push_back(layout_ == Layout::token_unique ? counts.tokens_per_rank[rank]
                                                                   : counts.rows_for(RankId(rank), map_));
  }
  if (has_far_) add_node_counts(counts);
  add_to(rows_.all, counts.rows);
  add_to(tokens_.all, counts.tokens_per_rank);

  const std::uint64_t tokens = sum<std::uint32_t>(counts.tokens_per_rank);
  const bool is_unique = layout_ == Layout::token_unique;
  const std::uint64_t sent = is_unique ? tokens : sum<std::uint32_t>(counts.rows);
  traffic_.rows += sent;
  traffic_.rows_between_ranks +=
      sent - (is_unique ? counts.tokens_per_rank[source_.index()] : counts.rows_for(source_, map_));
  traffic_.tokens_to_ranks += tokens;
  traffic_.tokens_between_nodes +=
      sum<std::uint32_t>(counts.tokens_per_node) - counts.tokens_per_node[topology_.node(source_).index()];
  traffic_.routed_tokens += counts.routed_tokens;
  hasher_.add_all<std::uint32_t>(counts.rows)
      .add_all<std::uint32_t>(counts.tokens_per_rank)
      .add_all<std::uint32_t>(counts.tokens_per_node)
      .add(counts.routed_tokens);
  ++source_.value;
}

std::uint32_t CountSums::tokens_from(RankId source) const {
  const auto ranks = topology_.ranks(topology_.node(self_));
  return node_counts_.tokens[source.index() * ranks.size() +
                             static_cast<std::size_t>(std::ranges::lower_bound(ranks, self_) - ranks.begin())];
}

std::span<const std::uint32_t> CountSums::rows_from(RankId source) const {
  std::size_t all = 0, before = 0;  // experts of the node, and those on lower ranks
  for (const RankId rank : topology_.ranks(topology_.node(self_))) {
    const auto count = static_cast<std::size_t>(map_.num_local(rank));
    all += count;
    before += rank < self_ ? count : 0;
  }
  return std::span(node_counts_.rows)
      .subspan(source.index() * all + before, static_cast<std::size_t>(map_.num_local(self_)));
}

void CountSums::add_node_counts(const SourceCounts& counts) {
  for (const RankId rank : topology_.ranks(topology_.node(self_))) {
    const auto first = map_.first_physical(rank).index();
    for (auto expert = first; expert < first + static_cast<std::size_t>(map_.num_local(rank)); ++expert) {
      node_counts_.rows.push_back(counts.rows[expert]);
      node_counts_.rows_before.push_back(rows_.all[expert]);
    }
    node_counts_.tokens.push_back(counts.tokens_per_rank[rank.index()]);
    node_counts_.tokens_before.push_back(tokens_.all[rank.index()]);
  }
  tokens_per_node_.insert(tokens_per_node_.end(), counts.tokens_per_node.begin(), counts.tokens_per_node.end());
}

}  // namespace shunt
