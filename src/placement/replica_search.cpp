#include "placement/replica_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/copy_choice.hpp"
#include "shunt/routing.hpp"

namespace shunt::placement {
namespace {

std::size_t index(std::int32_t value) { return static_cast<std::size_t>(value); }

/// A set that is cleared in constant time.
class Marks {
 public:
  explicit Marks(std::size_t size) : marked_(size) {}
  void clear() { ++now_; }
  /// True if it was not there.
  bool insert(std::size_t i) { return std::exchange(marked_[i], now_) != now_; }

 private:
  std::vector<std::uint64_t> marked_;
  std::uint64_t now_ = 0;
};

/// The map in the form that choose_copies() reads, with copies that can be moved. A copy is identified by its rank.
class Copies {
 public:
  Copies(const Holdings& holdings, std::size_t num_experts, const Topology& topology)
      : topology_(topology), ranks_of_(num_experts) {
    for (std::size_t rank = 0; rank < holdings.size(); ++rank)
      for (const std::int32_t expert : holdings[rank])
        ranks_of_[index(expert)].push_back(static_cast<std::int32_t>(rank));
    rebuild();
  }

  [[nodiscard]] bool has(std::int32_t expert, std::int32_t rank) const {
    const auto& ranks = ranks_of_[index(expert)];
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  }
  [[nodiscard]] std::size_t count(std::int32_t expert) const { return ranks_of_[index(expert)].size(); }

  void add(std::int32_t expert, std::int32_t rank) {
    auto& ranks = ranks_of_[index(expert)];
    ranks.insert(std::lower_bound(ranks.begin(), ranks.end(), rank), rank);
  }
  void remove(std::int32_t expert, std::int32_t rank) { std::erase(ranks_of_[index(expert)], rank); }

  /// Call it after changes.
  void rebuild() {
    experts_.clear();
    begin_.assign(1, 0);
    copies_.clear();
    for (std::size_t expert = 0; expert < ranks_of_.size(); ++expert) {
      for (const std::int32_t rank : ranks_of_[expert])
        copies_.push_back({rank, rank, topology_.node(RankId(rank)).value, 1});
      const CopyTables::Copy only = ranks_of_[expert].size() == 1 ? copies_.back() : CopyTables::Copy{-1, -1, -1, 1};
      experts_.push_back({only.physical, only.rank, only.node, hash_of_expert(static_cast<std::int32_t>(expert))});
      begin_.push_back(static_cast<std::int32_t>(copies_.size()));
    }
  }

  [[nodiscard]] CopyTables tables() const {
    return {static_cast<std::int32_t>(experts_.size()), experts_.data(), begin_.data(), copies_.data()};
  }

 private:
  const Topology& topology_;
  std::vector<std::vector<std::int32_t>> ranks_of_;  // by expert, ascending
  std::vector<CopyTables::Expert> experts_;
  std::vector<std::int32_t> begin_;
  std::vector<CopyTables::Copy> copies_;
};

constexpr double kLogOfCooling = -3.506557897319982;  // log of 0.03, the ratio of the last temperature to the first

/// e^x for x ≤ 0, with the same bits everywhere, which libraries don't guarantee.
double exp_below_zero(double x) {
  constexpr double kLog2 = 0.6931471805599453;
  const double halvings = std::floor(x / -kLog2);
  if (!(halvings < 1000)) return 0;
  const double rest = x + halvings * kLog2;  // −ln 2 to 0
  double sum = 1;
  for (int term = 14; term > 0; --term) sum = 1 + sum * rest / term;
  return std::ldexp(sum, -static_cast<int>(halvings));
}

class Annealing {
 public:
  Annealing(const ReplicaProblem& problem, const Holdings& start, Random random)
      : problem_(problem),
        random_(random),
        holdings_(start),
        copies_(start, index(problem.sample.num_experts), problem.topology),
        rank_marks_(index(problem.topology.num_ranks())),
        node_marks_(index(problem.topology.num_nodes())),
        token_marks_(problem.sample.num_tokens()),
        tokens_of_(index(problem.sample.num_experts)),
        experts_(problem.sample.experts.size()),
        rank_of_(problem.sample.experts.size(), -1),
        now_(start.size(), index(problem.topology.num_nodes())),
        best_(start) {
    std::ranges::transform(problem.sample.experts, experts_.begin(), [](std::uint16_t expert) {
      return expert == RoutedTokens::kDropped ? -1 : static_cast<std::int32_t>(expert);
    });
    for (std::size_t token = 0; token < problem.sample.num_tokens(); ++token)
      for (const std::uint16_t expert : problem.sample.experts_of(token))
        if (expert != RoutedTokens::kDropped) tokens_of_[expert].push_back(static_cast<std::uint32_t>(token));
    for (std::size_t token = 0; token < problem.sample.num_tokens(); ++token) {
      ranks_for(token, ranks_of(token));
      count(ranks_of(token), 1, now_);
    }
    rows_ = std::accumulate(now_.rows.begin(), now_.rows.end(), 0.0);
    value_ = value_of(now_);
  }

  Holdings run(int proposals) {
    temperature_ = 1e-3 * value_;
    // An excess row costs as much as the objective's value per row, times a factor that adapts.
    penalty_ = 0.5 * value_ / rows_;
    const double least = penalty_ / 20, most = penalty_ * 100;
    const double cooling = exp_below_zero(kLogOfCooling / std::max(1, proposals));
    for (int i = 0; i < proposals; ++i, temperature_ *= cooling) {
      note();
      penalty_ = std::clamp(penalty_ * (excess_ > 0 ? 1.01 : 0.995), least, most);
      propose();
    }
    note();
    return best_;
  }

 private:
  /// Number of tokens that touch ranks and nodes, and rows per rank.
  struct Counts {
    Counts(std::size_t num_ranks, std::size_t num_nodes) : ranks(num_ranks), nodes(num_nodes), rows(num_ranks) {}
    std::vector<double> ranks, nodes, rows;
  };

  [[nodiscard]] std::span<std::int16_t> ranks_of(std::size_t token) {
    const auto k = static_cast<std::size_t>(problem_.sample.topk);
    return std::span(rank_of_).subspan(token * k, k);
  }

  /// The ranks that serve a token's experts; −1 for dropped ones.
  void ranks_for(std::size_t token, std::span<std::int16_t> ranks) const {
    const auto k = static_cast<std::size_t>(problem_.sample.topk);
    std::fill(ranks.begin(), ranks.end(), std::int16_t{-1});
    const RankId source(problem_.sample.sources[token]);
    with_needed(problem_.topology.num_ranks(), problem_.topology.node(source).value, [&](auto& needed) {
      choose_copies(
          copies_.tables(), source.value, &experts_[token * k], problem_.sample.topk, needed,
          [&](std::int32_t choice, std::int32_t rank) { ranks[index(choice)] = static_cast<std::int16_t>(rank); });
    });
  }

  void count(std::span<const std::int16_t> ranks, double sign, Counts& counts) {
    rank_marks_.clear();
    node_marks_.clear();
    for (const std::int16_t rank : ranks) {
      if (rank < 0) continue;
      counts.rows[index(rank)] += sign;
      if (!rank_marks_.insert(index(rank))) continue;
      counts.ranks[index(rank)] += sign;
      const std::size_t node = problem_.topology.node(RankId(std::int32_t{rank})).index();
      if (node_marks_.insert(node)) counts.nodes[node] += sign;
    }
  }

  [[nodiscard]] double value_of(const Counts& counts) const {
    const Objective& weights = problem_.objective;
    const auto sum = [](const std::vector<double>& of) { return std::accumulate(of.begin(), of.end(), 0.0); };
    const auto most = [](const std::vector<double>& of) { return *std::max_element(of.begin(), of.end()); };
    return weights.rank_sum * sum(counts.ranks) + weights.node_sum * sum(counts.nodes) +
           std::max(weights.rank_most * most(counts.ranks), weights.node_most * most(counts.nodes));
  }

  [[nodiscard]] double excess_of(const Counts& counts) const {
    const double most = problem_.most_load * rows_ / static_cast<double>(counts.rows.size());
    double sum = 0;
    for (const double rows : counts.rows) sum += std::max(0.0, rows - most);
    return sum;
  }

  void note() {
    excess_ = excess_of(now_);
    const std::pair cost(excess_, value_);
    if (cost >= best_cost_) return;
    best_cost_ = cost;
    best_ = holdings_;
  }

  void propose() {
    const std::size_t from = random_.below(holdings_.size());
    if (holdings_[from].empty()) return;
    const std::size_t place = random_.below(holdings_[from].size());
    const std::int32_t a = holdings_[from][place];
    const auto rank = static_cast<std::int32_t>(from);
    if (copies_.count(a) > 1 && random_.below(2) == 0) {
      const auto b = static_cast<std::int32_t>(random_.below(index(problem_.sample.num_experts)));
      if (copies_.has(b, rank)) return;
      copies_.remove(a, rank);
      copies_.add(b, rank);
      if (try_tokens(a, b)) {
        holdings_[from][place] = b;
      } else {
        copies_.remove(b, rank);
        copies_.add(a, rank);
        copies_.rebuild();
      }
      return;
    }
    const std::size_t to = random_.below(holdings_.size());
    if (to == from || holdings_[to].empty()) return;
    const std::size_t other_place = random_.below(holdings_[to].size());
    const std::int32_t b = holdings_[to][other_place];
    const auto other = static_cast<std::int32_t>(to);
    if (a == b || copies_.has(a, other) || copies_.has(b, rank)) return;
    const auto exchange = [&](std::int32_t here, std::int32_t there) {
      copies_.remove(here, rank);
      copies_.remove(there, other);
      copies_.add(here, other);
      copies_.add(there, rank);
    };
    exchange(a, b);
    if (try_tokens(a, b)) {
      std::swap(holdings_[from][place], holdings_[to][other_place]);
    } else {
      exchange(b, a);
      copies_.rebuild();
    }
  }

  /// Recounts the tokens of two experts, and accepts or rejects the change by the annealing rule.
  bool try_tokens(std::int32_t a, std::int32_t b) {
    copies_.rebuild();
    Counts after = now_;
    tried_.clear();
    tried_ranks_.clear();
    token_marks_.clear();
    const auto k = static_cast<std::size_t>(problem_.sample.topk);
    for (const std::int32_t expert : {a, b})
      for (const std::uint32_t token : tokens_of_[index(expert)]) {
        if (!token_marks_.insert(token)) continue;
        tried_.push_back(token);
        tried_ranks_.resize(tried_ranks_.size() + k);
        const auto ranks = std::span(tried_ranks_).last(k);
        ranks_for(token, ranks);
        if (std::ranges::equal(ranks, ranks_of(token))) continue;
        count(ranks_of(token), -1, after);
        count(ranks, 1, after);
      }
    const double value = value_of(after);
    const double cost = value - value_ + penalty_ * (excess_of(after) - excess_);
    if (cost > 0 && random_.unit() >= exp_below_zero(-cost / temperature_)) return false;
    for (std::size_t i = 0; i < tried_.size(); ++i)
      std::copy_n(tried_ranks_.begin() + static_cast<std::ptrdiff_t>(i * k), k, ranks_of(tried_[i]).begin());
    now_ = std::move(after);
    value_ = value;
    return true;
  }

  const ReplicaProblem& problem_;
  Random random_;
  Holdings holdings_;
  Copies copies_;
  Marks rank_marks_, node_marks_, token_marks_;
  std::vector<std::vector<std::uint32_t>> tokens_of_;  // by expert
  std::vector<std::int32_t> experts_;                  // [tokens, topk]; −1: dropped
  std::vector<std::int16_t> rank_of_;                  // [tokens, topk]; −1: dropped
  Counts now_;
  double rows_ = 0, value_ = 0, excess_ = 0, penalty_ = 0, temperature_ = 0;
  std::vector<std::uint32_t> tried_;
  std::vector<std::int16_t> tried_ranks_;
  Holdings best_;
  std::pair<double, double> best_cost_{std::numeric_limits<double>::infinity(), 0};
};

}  // namespace

Holdings add_copies(const RoutedTokens& sample, Holdings holdings, std::size_t places) {
  const std::size_t num_ranks = holdings.size();
  const auto num_experts = index(sample.num_experts);
  std::vector<std::size_t> rank_of(num_experts);
  for (std::size_t rank = 0; rank < num_ranks; ++rank)
    for (const std::int32_t expert : holdings[rank]) rank_of[index(expert)] = rank;

  struct Copy {
    std::int64_t spared;
    std::size_t expert, rank;
  };
  std::vector<Copy> candidates;
  for (std::size_t expert = 0; expert < num_experts; ++expert)
    for (std::size_t rank = 0; rank < num_ranks; ++rank) candidates.push_back({0, expert, rank});
  std::vector<int> held(num_ranks);
  for (std::size_t token = 0; token < sample.num_tokens(); ++token) {
    std::fill(held.begin(), held.end(), 0);
    const auto experts = sample.experts_of(token);
    for (const std::uint16_t expert : experts)
      if (expert != RoutedTokens::kDropped) ++held[rank_of[expert]];
    for (const std::uint16_t expert : experts) {
      if (expert == RoutedTokens::kDropped || held[rank_of[expert]] > 1) continue;
      for (std::size_t rank = 0; rank < num_ranks; ++rank)
        if (rank != rank_of[expert] && held[rank] > 0) ++candidates[expert * num_ranks + rank].spared;
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Copy& a, const Copy& b) { return a.spared > b.spared; });
  const std::size_t base = places / num_ranks, more = places % num_ranks;
  std::size_t with_more = 0;
  for (const auto& experts : holdings) with_more += experts.size() > base;
  for (const Copy& copy : candidates) {
    auto& here = holdings[copy.rank];
    if (copy.rank == rank_of[copy.expert] || here.size() > base || (here.size() == base && with_more == more)) continue;
    here.push_back(static_cast<std::int32_t>(copy.expert));
    with_more += here.size() > base;
  }
  return holdings;
}

Holdings search_replicas(const ReplicaProblem& problem, const Holdings& start, int proposals, Random random) {
  return Annealing(problem, start, random).run(proposals);
}

}  // namespace shunt::placement
