#include "placement/partition_search.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "placement/swap_tables.hpp"

namespace shunt::placement {
namespace {

constexpr double kRounding = 1e-12;  // of loads, which are shares
constexpr double kOfValuePerMove = 0.01;

/// The maximum of some values if two of them are replaced.
class Largest {
 public:
  explicit Largest(std::span<const std::int64_t> values) : values_(values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::size_t at = top_.size();
      while (at > 0 && (top_[at - 1] == kNone || values[top_[at - 1]] < values[i])) --at;
      for (std::size_t j = top_.size() - 1; j > at && at < top_.size(); --j) top_[j] = top_[j - 1];
      if (at < top_.size()) top_[at] = i;
    }
  }
  [[nodiscard]] std::int64_t with(std::size_t a, std::int64_t change_a, std::size_t b, std::int64_t change_b) const {
    std::int64_t most = std::max(values_[a] + change_a, values_[b] + change_b);
    for (const std::size_t i : top_)
      if (i != kNone && i != a && i != b) return std::max(most, values_[i]);
    return most;
  }
  [[nodiscard]] std::int64_t value() const { return values_[top_.front()]; }

 private:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  std::span<const std::int64_t> values_;
  std::array<std::size_t, 3> top_{kNone, kNone, kNone};
};

/// The cost of one unit beyond a limit: rises while the limit is exceeded, falls while it is kept.
class Penalty {
 public:
  explicit Penalty(double start) : start_(start), weight_(start) {}
  [[nodiscard]] double of(double excess) const { return weight_ * excess; }
  void adapt(bool is_kept) { weight_ = std::clamp(weight_ * (is_kept ? 0.97 : 1.05), start_ / 25, start_ * 40); }

 private:
  double start_, weight_;
};

class TabuSearch {
 public:
  TabuSearch(const PartitionProblem& problem, std::span<const std::int32_t> start, Random random)
      : problem_(problem),
        random_(random),
        ranks_(problem.sample, problem.num_items(), problem.num_ranks()),
        load_(problem.rank_loads(start)),
        free_after_(problem.num_items()),
        vacancies_(problem.num_ranks()),
        // As much as the excess rows would cost if each were a token.
        overload_(0.5 * static_cast<double>(problem.sample.experts.size())),
        best_{{start.begin(), start.end()}, std::numeric_limits<double>::infinity()} {
    ranks_.assign(start);
    for (std::size_t item = problem.num_experts(); item < problem.num_items(); ++item)
      ++vacancies_[static_cast<std::size_t>(start[item])];
    const Objective& weights = problem.objective;
    const std::int32_t num_nodes = *std::max_element(problem.node.begin(), problem.node.end()) + 1;
    if (num_nodes > 1 && (weights.node_sum != 0 || weights.node_most != 0)) {
      nodes_.emplace(problem.sample, problem.num_items(), static_cast<std::size_t>(num_nodes));
      std::vector<std::int32_t> node_of;
      for (const std::int32_t rank : start) node_of.push_back(node(rank));
      nodes_->assign(node_of);
    }
    over_moves_ = Penalty(kOfValuePerMove * value());
  }

  Partition run(int steps) {
    for (int step = 0; step < steps; ++step) {
      note();
      if (!advance(step)) break;
    }
    note();
    return best_;
  }

 private:
  [[nodiscard]] std::int32_t node(std::int32_t rank) const { return problem_.node[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] double excess(double load) const { return std::max(0.0, load - problem_.most_load - kRounding); }
  [[nodiscard]] double load_of(std::size_t item) const {
    return item < problem_.num_experts() ? problem_.load[item] : 0.0;
  }
  [[nodiscard]] double total_excess() const {
    double sum = 0;
    for (const double load : load_) sum += excess(load);
    return sum;
  }

  [[nodiscard]] double value() const {
    const Objective& weights = problem_.objective;
    double value = weights.rank_sum * static_cast<double>(ranks_.total());
    double most = 0;
    if (weights.rank_most != 0) most = weights.rank_most * static_cast<double>(Largest(ranks_.touching()).value());
    if (nodes_) {
      value += weights.node_sum * static_cast<double>(nodes_->total());
      most = std::max(most, weights.node_most * static_cast<double>(Largest(nodes_->touching()).value()));
    }
    return value + most;
  }

  void note() {
    moves_ = 0;
    for (std::size_t expert = 0; expert < problem_.home.size(); ++expert)
      moves_ += ranks_.group(expert) != problem_.home[expert];
    value_ = value();
    excess_ = total_excess();
    const bool has_room = excess_ == 0, has_moves = moves_beyond(moves_) == 0;
    if (has_room && has_moves && value_ < best_.value)
      best_ = {{ranks_.groups().begin(), ranks_.groups().end()}, value_};
    overload_.adapt(has_room);
    over_moves_.adapt(has_moves);
  }

  /// Makes the best swap; false if none is possible.
  bool advance(int step) {
    struct Swap {
      std::size_t a = 0, b = 0;
      double cost = std::numeric_limits<double>::infinity();
    } chosen;
    const Largest most_rank(ranks_.touching()), most_node(nodes_ ? nodes_->touching() : ranks_.touching());
    for (std::size_t a = 0; a < problem_.num_experts(); ++a) {
      const bool a_rests = free_after_[a] > step;
      for (std::size_t b = a + 1; b < problem_.num_items(); ++b) {
        const auto rank_a = static_cast<std::size_t>(ranks_.group(a)),
                   rank_b = static_cast<std::size_t>(ranks_.group(b));
        if (rank_a == rank_b || (b >= problem_.num_experts() && vacancies_[rank_a] > 0)) continue;
        const double change = value_after(a, b, most_rank, most_node) - value_;
        const double moved = load_of(a) - load_of(b);
        const double more = excess(load_[rank_a] - moved) + excess(load_[rank_b] + moved) - excess(load_[rank_a]) -
                            excess(load_[rank_b]);
        const std::int64_t moves = moves_ + moving(a, ranks_.group(b)) + moving(b, ranks_.group(a));
        const double cost = change + overload_.of(more) + over_moves_.of(moves_beyond(moves));
        if (cost >= chosen.cost) continue;
        const bool rests = a_rests || free_after_[b] > step;
        const bool is_best_yet =
            value_ + change < best_.value && excess_ + more <= kRounding && moves_beyond(moves) == 0;
        if (rests && !is_best_yet) continue;
        chosen = {a, b, cost};
      }
    }
    if (chosen.cost == std::numeric_limits<double>::infinity()) return any_is_deferred(step);
    swap(chosen.a, chosen.b);
    const std::size_t longest = std::min<std::size_t>(15, problem_.num_items() / 4 + 1);
    const int rest = static_cast<int>(longest / 3 + random_.below(longest - longest / 3 + 1));
    free_after_[chosen.a] = step + 1 + rest;
    free_after_[chosen.b] = step + 1 + rest + static_cast<int>(random_.below(3));
    return true;
  }

  [[nodiscard]] bool any_is_deferred(int step) const {
    return std::any_of(free_after_.begin(), free_after_.end(), [&](int until) { return until > step; });
  }

  [[nodiscard]] double value_after(std::size_t a, std::size_t b, const Largest& most_rank,
                                   const Largest& most_node) const {
    const Objective& weights = problem_.objective;
    const SwapTables::Change at = ranks_.change(a, b);
    double value = weights.rank_sum * static_cast<double>(ranks_.total() + at.at_a + at.at_b);
    double most = 0;
    if (weights.rank_most != 0)
      most =
          weights.rank_most * static_cast<double>(most_rank.with(static_cast<std::size_t>(ranks_.group(a)), at.at_a,
                                                                 static_cast<std::size_t>(ranks_.group(b)), at.at_b));
    if (nodes_) {
      const auto node_a = static_cast<std::size_t>(nodes_->group(a)),
                 node_b = static_cast<std::size_t>(nodes_->group(b));
      const SwapTables::Change between = node_a == node_b ? SwapTables::Change{0, 0} : nodes_->change(a, b);
      value += weights.node_sum * static_cast<double>(nodes_->total() + between.at_a + between.at_b);
      most = std::max(
          most, weights.node_most * static_cast<double>(most_node.with(node_a, between.at_a, node_b, between.at_b)));
    }
    return value + most;
  }

  /// The change in the number of experts away from home if this item goes to the rank.
  [[nodiscard]] std::int64_t moving(std::size_t item, std::int32_t rank) const {
    if (item >= problem_.home.size()) return 0;
    const std::int32_t home = problem_.home[item];
    return (rank != home) - (ranks_.group(item) != home);
  }
  [[nodiscard]] double moves_beyond(std::int64_t moves) const {
    return static_cast<double>(std::max<std::int64_t>(0, moves - problem_.most_moves));
  }

  void swap(std::size_t a, std::size_t b) {
    const auto rank_a = static_cast<std::size_t>(ranks_.group(a)), rank_b = static_cast<std::size_t>(ranks_.group(b));
    ranks_.swap(a, b);
    if (nodes_ && nodes_->group(a) != nodes_->group(b)) nodes_->swap(a, b);
    if (b >= problem_.num_experts()) {
      ++vacancies_[rank_a];
      --vacancies_[rank_b];
    }
    load_ = problem_.rank_loads(ranks_.groups());
  }

  const PartitionProblem& problem_;
  Random random_;
  SwapTables ranks_;
  std::optional<SwapTables> nodes_;
  std::vector<double> load_;     // [ranks]
  std::vector<int> free_after_;  // [items]: the step after which an item may be swapped again
  std::vector<int> vacancies_;   // [ranks]
  Penalty overload_;
  Penalty over_moves_{0};
  double value_ = 0, excess_ = 0;
  std::int64_t moves_ = 0;  // experts that are not at home
  Partition best_;
};

}  // namespace

std::vector<double> PartitionProblem::rank_loads(std::span<const std::int32_t> rank_of) const {
  std::vector<double> loads(num_ranks());
  for (std::size_t expert = 0; expert < num_experts(); ++expert)
    loads[static_cast<std::size_t>(rank_of[expert])] += load[expert];
  return loads;
}

std::vector<std::int32_t> with_vacancies(std::span<const std::int32_t> rank_of, std::size_t num_ranks) {
  std::vector<std::size_t> held(num_ranks);
  for (const std::int32_t rank : rank_of) ++held[static_cast<std::size_t>(rank)];
  const std::size_t most = (rank_of.size() + num_ranks - 1) / num_ranks;
  std::vector<std::int32_t> items(rank_of.begin(), rank_of.end());
  for (std::size_t rank = 0; rank < num_ranks; ++rank)
    for (std::size_t i = held[rank]; i < most; ++i) items.push_back(static_cast<std::int32_t>(rank));
  return items;
}

Partition search_partition(const PartitionProblem& problem, std::span<const std::int32_t> start, int steps,
                           Random random) {
  return TabuSearch(problem, start, random).run(steps);
}

}  // namespace shunt::placement
