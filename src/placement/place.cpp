#include "placement/place.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/fail.hpp"
#include "placement/baselines.hpp"
#include "placement/partition_search.hpp"
#include "placement/replica_search.hpp"

namespace shunt::placement {
namespace {

constexpr double kSlackOverLoadOnly = 1.05;
constexpr std::array<std::string_view, kMethods.size()> kNames = {"shunt", "contiguous", "occult-greedy",
                                                                  "occult-repaired", "load-only"};

ExpertMap map_of(const Holdings& holdings, std::int32_t num_experts) {
  std::vector<std::vector<ExpertId>> placement;
  for (const auto& experts : holdings) placement.emplace_back(experts.begin(), experts.end());
  return ExpertMap::from_placement(num_experts, placement);
}

Holdings holdings_of(std::span<const std::int32_t> rank_of, std::size_t num_experts, std::size_t num_ranks) {
  Holdings holdings(num_ranks);
  for (std::size_t expert = 0; expert < num_experts; ++expert)
    holdings[static_cast<std::size_t>(rank_of[expert])].push_back(static_cast<std::int32_t>(expert));
  return holdings;
}

/// The rank of each expert, for a map without copies.
std::vector<std::int32_t> ranks_of(const ExpertMap& map) {
  std::vector<std::int32_t> rank_of;
  for (std::int32_t expert = 0; expert < map.num_experts(); ++expert)
    rank_of.push_back(map.rank(map.copies(ExpertId(expert)).front()).value);
  return rank_of;
}

class LayerPlacement {
 public:
  /// Throws Error(invalid_argument).
  LayerPlacement(const RoutedTokens& tokens, const PlaceOptions& options)
      : tokens_(tokens),
        options_(options),
        topology_(options.topology()),
        num_experts_(static_cast<std::size_t>(tokens.num_experts)),
        num_ranks_(static_cast<std::size_t>(topology_.num_ranks())),
        rows_(tokens.rows_per_expert()),
        sample_(tokens.sample(options.effort.sample)) {
    if (tokens.num_experts > kMostExperts)
      fail(ErrorCode::invalid_argument, "placement: {} experts, expected at most {}", tokens.num_experts, kMostExperts);
  }

  Placed make(Method method) {
    switch (method) {
      case Method::contiguous: return {ExpertMap::contiguous(tokens_.num_experts, topology_.num_ranks()), {}};
      case Method::load_only: return {load_only_map(), {}};
      case Method::occult_greedy: return {map_of(greedy(tokens_)), {}};
      case Method::occult_repaired: return {repaired(), limit()};
      case Method::shunt: break;
    }
    const bool has_copies = places() > num_experts_;
    const ExpertMap map = has_copies ? with_copies() : without_copies();
    return {map, limit()};
  }

  std::vector<ExpertMap> near(const ExpertMap& current, const ExpertMap& fresh, double limit,
                              std::span<const std::int64_t> most_moves) const {
    const std::vector<std::int32_t> home = ranks_of(current);
    std::vector<ExpertMap> maps;
    PartitionProblem whole = problem(sample_, nodes(), objective(), limit);
    whole.home = home;
    for (const std::vector<std::int32_t>& start : {home, ranks_of(fresh)})
      for (const double kept_mean : options_.goal == Goal::time ? std::vector{1.0, 0.1} : std::vector{1.0})
        for (const std::int64_t moves : most_moves) {
          whole.objective = objective(kept_mean);
          whole.most_moves = moves;
          const Partition found = search_partition(whole, with_vacancies(start, num_ranks_), 2 * options_.effort.steps,
                                                   Random(options_.effort.seed));
          if (found.value == std::numeric_limits<double>::infinity()) continue;
          maps.push_back(map_of(std::span(found.rank_of).first(num_experts_)));
        }
    return maps;
  }

 private:
  [[nodiscard]] std::size_t places() const { return static_cast<std::size_t>(options_.places(tokens_.num_experts)); }
  [[nodiscard]] ExpertMap load_only_map() const {
    return load_only(rows_, topology_, options_.places(tokens_.num_experts));
  }
  [[nodiscard]] ExpertMap map_of(std::span<const std::int32_t> rank_of) const {
    return placement::map_of(holdings_of(rank_of, num_experts_, num_ranks_), tokens_.num_experts);
  }
  [[nodiscard]] double load_of(const ExpertMap& map) const {
    return score(tokens_, map, topology_, options_.cost).load;
  }

  double limit() {
    if (!limit_) limit_ = options_.load_limit ? *options_.load_limit : kSlackOverLoadOnly * load_of(load_only_map());
    return *limit_;
  }

  [[nodiscard]] std::vector<std::int32_t> greedy(const RoutedTokens& tokens) const {
    return occult_greedy(tokens.co_activation(), num_experts_, num_ranks_);
  }

  /// A problem over groups that represent ranks, with or without nodes.
  [[nodiscard]] PartitionProblem problem(const RoutedTokens& sample, std::vector<std::int32_t> node,
                                         const Objective& objective, double limit) const {
    const double total =
        static_cast<double>(std::max<std::int64_t>(1, std::accumulate(rows_.begin(), rows_.end(), std::int64_t{0})));
    std::vector<double> load;
    for (const std::int64_t rows : rows_) load.push_back(static_cast<double>(rows) / total);
    const auto groups = static_cast<double>(node.size());
    return {sample, std::move(load), std::move(node), objective, limit / groups};
  }
  [[nodiscard]] std::vector<std::int32_t> nodes() const {
    std::vector<std::int32_t> node;
    for (const NodeId each : topology_.nodes()) node.push_back(each.value);
    return node;
  }

  ExpertMap repaired() {
    constexpr std::size_t kMostTokens = 50'000;  // on which swaps are scored
    const RoutedTokens some = tokens_.sample(kMostTokens);
    const auto rank_of = occult_repaired(problem(some, nodes(), {}, limit()), greedy(tokens_));
    if (!rank_of)
      fail(ErrorCode::invalid_argument,
           "placement: occult-repaired finds no swap that lowers the busiest "
           "rank's load to {:.4f} of the mean",
           limit());
    return map_of(*rank_of);
  }

  [[nodiscard]] Objective objective(double kept_mean = 1) const {
    if (options_.goal == Goal::c_t) return {};
    // The rows that the busiest rank and the busiest node receive, without those that forwarders and nodes keep; and a
    // part of the means, because a lower sum leaves room for a lower maximum.
    const double of_mean = 0.3 * kept_mean;
    const double m = options_.ranks_per_node, n = options_.nodes;
    const double near = options_.cost.near_s_per_row * (m - 1) / m, far = options_.cost.far_s_per_row * (n - 1) / n;
    return {.rank_sum = of_mean * near / (m * n), .node_sum = of_mean * far / n, .rank_most = near, .node_most = far};
  }

  /// The assignment without copies with the smallest maximum load.
  [[nodiscard]] std::vector<std::int32_t> balanced() const {
    return balance(rows_, ranks_of(load_only(rows_, topology_, tokens_.num_experts)), num_ranks_);
  }

  /// Assigns experts to nodes first, for the fewest nodes per token; then each node's experts to its ranks.
  [[nodiscard]] std::vector<std::int32_t> nodes_first(double limit, Random random) const {
    const auto num_nodes = static_cast<std::size_t>(options_.nodes);
    const std::vector<std::int32_t> one_level(num_nodes, 0);
    const auto start = with_vacancies(occult_greedy(sample_.co_activation(), num_experts_, num_nodes), num_nodes);
    const auto node_of = search_partition(problem(sample_, one_level, {}, limit), start, options_.effort.steps, random);
    std::vector<std::int32_t> rank_of(num_experts_);
    const auto together = sample_.co_activation();
    for (std::size_t node = 0; node < num_nodes; ++node) {
      std::vector<std::size_t> here;
      for (std::size_t expert = 0; expert < num_experts_; ++expert)
        if (static_cast<std::size_t>(node_of.rank_of[expert]) == node) here.push_back(expert);
      std::vector<std::int64_t> inside;
      for (const std::size_t a : here)
        for (const std::size_t b : here) inside.push_back(together[a * num_experts_ + b]);
      const auto ranks = topology_.ranks(NodeId(node));
      const auto local = occult_greedy(inside, here.size(), ranks.size());
      for (std::size_t i = 0; i < here.size(); ++i) rank_of[here[i]] = ranks[static_cast<std::size_t>(local[i])].value;
    }
    return rank_of;
  }

  /// Grouping ranks into nodes does not affect C_T; this choice minimises the nodes that tokens touch.
  [[nodiscard]] std::vector<std::int32_t> ranks_to_nodes(std::vector<std::int32_t> rank_of, Random random) const {
    if (options_.nodes == 1 || options_.ranks_per_node == 1) return rank_of;
    RoutedTokens of_ranks{topology_.num_ranks(), sample_.topk, {}, sample_.sources};
    for (std::size_t token = 0; token < sample_.num_tokens(); ++token) {
      const std::size_t begin = of_ranks.experts.size();
      for (const std::uint16_t expert : sample_.experts_of(token)) {
        const auto rank =
            expert == RoutedTokens::kDropped ? RoutedTokens::kDropped : static_cast<std::uint16_t>(rank_of[expert]);
        const auto seen =
            std::find(of_ranks.experts.begin() + static_cast<std::ptrdiff_t>(begin), of_ranks.experts.end(), rank);
        of_ranks.experts.push_back(seen == of_ranks.experts.end() ? rank : RoutedTokens::kDropped);
      }
    }
    const auto num_nodes = static_cast<std::size_t>(options_.nodes);
    const PartitionProblem ranks{of_ranks,
                                 std::vector<double>(num_ranks_, 1.0 / static_cast<double>(num_ranks_)),
                                 std::vector<std::int32_t>(num_nodes, 0),
                                 {},
                                 1.0};
    const auto start = occult_greedy(of_ranks.co_activation(), num_ranks_, num_nodes);
    const auto node_of = search_partition(ranks, start, options_.effort.steps, random).rank_of;
    std::vector<std::int32_t> taken(num_nodes), new_rank(num_ranks_);
    for (std::size_t rank = 0; rank < num_ranks_; ++rank) {
      const auto node = static_cast<std::size_t>(node_of[rank]);
      new_rank[rank] = topology_.ranks(NodeId(node))[static_cast<std::size_t>(taken[node]++)].value;
    }
    for (std::int32_t& rank : rank_of) rank = new_rank[static_cast<std::size_t>(rank)];
    return rank_of;
  }

  /// The best partition within the limit, which may be infinite.
  [[nodiscard]] std::vector<std::int32_t> search(double limit) const {
    const PartitionProblem whole = problem(sample_, nodes(), objective(), limit);
    std::vector<std::int32_t> best;
    double best_cost = 0;
    for (int start = 0; start < options_.effort.starts; ++start) {
      const Random random(options_.effort.seed * 1'000'003 + static_cast<std::uint64_t>(start));
      const auto rank_of = search_partition(whole, with_vacancies(start_of(start, limit, random), num_ranks_),
                                            options_.effort.steps, random);
      if (rank_of.value == std::numeric_limits<double>::infinity()) continue;  // not within the limit
      std::vector<std::int32_t> found(rank_of.rank_of.begin(),
                                      rank_of.rank_of.begin() + static_cast<std::ptrdiff_t>(num_experts_));
      double cost = rank_of.value;
      if (options_.goal == Goal::c_t)
        found = ranks_to_nodes(std::move(found), random);
      else
        cost = score(sample_, map_of(found), topology_, options_.cost).estimated_ms;
      if (!best.empty() && cost >= best_cost) continue;
      best = std::move(found);
      best_cost = cost;
    }
    return best.empty() ? balanced() : best;
  }

  [[nodiscard]] std::vector<std::int32_t> start_of(int start, double limit, Random random) const {
    if (start == 0) return balanced();  // within the limit if any assignment is
    if (start == 1)
      return options_.nodes > 1 && options_.goal == Goal::time ? nodes_first(limit, random) : greedy(sample_);
    if (start == 2)
      if (auto rank_of = occult_repaired(problem(sample_, nodes(), {}, limit), greedy(sample_))) return *rank_of;
    std::vector<std::int32_t> rank_of = ranks_of(ExpertMap::contiguous(tokens_.num_experts, topology_.num_ranks()));
    random.shuffle(rank_of);
    return rank_of;
  }

  ExpertMap without_copies() {
    const ExpertMap least = map_of(balanced());
    if (const double load = load_of(least); load > limit() * (1 + 1e-9)) throw UnreachableLimit(limit(), load);
    return map_of(search(limit()));
  }

  ExpertMap with_copies() {
    // Copies take load from busy ranks, so the start may exceed the limit.
    constexpr double kSlackBeforeCopies = 1.15;
    const std::vector<std::int32_t> rank_of =
        search(std::max(limit(), load_of(map_of(balanced()))) * kSlackBeforeCopies);
    Holdings holdings = add_copies(sample_, holdings_of(rank_of, num_experts_, num_ranks_), places());
    // Loads of the sample differ from those of all tokens; a smaller limit on the sample keeps the limit on all.
    double least = std::numeric_limits<double>::infinity();
    for (const double margin : {0.995, 0.985, 0.97, 0.95}) {
      const ReplicaProblem replicas{sample_, topology_, objective(), limit() * margin};
      holdings = search_replicas(replicas, holdings, options_.effort.replica_proposals, Random(options_.effort.seed));
      const ExpertMap map = placement::map_of(holdings, tokens_.num_experts);
      const double load = load_of(map);
      if (load <= limit()) return map;
      least = std::min(least, load);
    }
    const ExpertMap even = load_only_map();
    const double load = load_of(even);
    if (load <= limit()) return even;
    throw UnreachableLimit(limit(), std::min(least, load));
  }

  const RoutedTokens& tokens_;
  const PlaceOptions& options_;
  Topology topology_;
  std::size_t num_experts_, num_ranks_;
  std::vector<std::int64_t> rows_;  // by expert
  RoutedTokens sample_;
  std::optional<double> limit_;
};

}  // namespace

std::string_view to_string(Method method) { return kNames[static_cast<std::size_t>(method)]; }

UnreachableLimit::UnreachableLimit(double limit, double least)
    : Error(ErrorCode::invalid_argument,
            fmt::format("placement: no map keeps the busiest rank's load within {:.4f} of the mean; the least found is "
                        "{:.4f}",
                        limit, std::ceil(least * 1e4) / 1e4)),
      least_(std::ceil(least * 1e4) / 1e4) {}

std::vector<Method> parse_methods(std::string_view name) {
  if (name == "all") return {kMethods.begin(), kMethods.end()};
  for (const Method method : kMethods)
    if (to_string(method) == name) return {method};
  fail(ErrorCode::invalid_argument, "method '{}': expected {} or all", name, fmt::join(kNames, ", "));
}

std::int32_t PlaceOptions::places(std::int32_t num_experts) const {
  return num_experts + static_cast<std::int32_t>(std::lround(num_experts * replicas / 100));
}

std::vector<ExpertMap> maps_near(const RoutedTokens& tokens, const ExpertMap& current, const ExpertMap& fresh,
                                 double load_limit, std::span<const std::int64_t> most_moves,
                                 const PlaceOptions& options) {
  return LayerPlacement(tokens, options).near(current, fresh, load_limit, most_moves);
}

Placed place(Method method, const RoutedTokens& tokens, const PlaceOptions& options) {
  return LayerPlacement(tokens, options).make(method);
}

}  // namespace shunt::placement
