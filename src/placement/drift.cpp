#include "placement/drift.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "core/fail.hpp"
#include "placement/assignment.hpp"
#include "placement/partition_search.hpp"

namespace shunt::placement {
namespace {

/// One of `num_parts` parts of the tokens, which takes every num_parts-th run of each source, so that each part covers
/// all sources and the whole time.
RoutedTokens part_of(const RoutedTokens& tokens, std::size_t part, std::size_t num_parts) {
  RoutedTokens some{tokens.num_experts, tokens.topk, {}, {}};
  std::vector<std::size_t> seen;  // tokens of each source
  for (const std::int32_t source : tokens.sources) seen.resize(std::max(seen.size(), std::size_t(source) + 1));
  const std::size_t run = std::clamp<std::size_t>(tokens.num_tokens() / (32 * num_parts * seen.size()), 1, kRunTokens);
  for (std::size_t token = 0; token < tokens.num_tokens(); ++token) {
    if (seen[static_cast<std::size_t>(tokens.sources[token])]++ / run % num_parts != part) continue;
    const auto experts = tokens.experts_of(token);
    some.experts.insert(some.experts.end(), experts.begin(), experts.end());
    some.sources.push_back(tokens.sources[token]);
  }
  return some;
}

/// The time of the link that moving keeps busiest, between ranks or between nodes.
double moving_ms(const std::vector<Move>& moves, const DriftOptions& options, const Topology& topology) {
  std::vector<double> sent(static_cast<std::size_t>(topology.num_ranks())), received(sent.size());
  std::vector<double> left(static_cast<std::size_t>(topology.num_nodes())), entered(left.size());
  for (const Move& move : moves) {
    sent[move.from.index()] += options.expert_bytes;
    received[move.to.index()] += options.expert_bytes;
    if (topology.node(move.from) == topology.node(move.to)) continue;
    left[topology.node(move.from).index()] += options.expert_bytes;
    entered[topology.node(move.to).index()] += options.expert_bytes;
  }
  const auto most = [](const std::vector<double>& a, const std::vector<double>& b) {
    return std::max(*std::max_element(a.begin(), a.end()), *std::max_element(b.begin(), b.end()));
  };
  return 1e3 * std::max(most(sent, received) / options.near_bytes_per_s, most(left, entered) / options.far_bytes_per_s);
}

/// Removing the last of an imbalance is not worth moving experts, unless a limit was requested.
constexpr double kSlackOfLoad = 1.05;

/// The gain of one map over another, and its uncertainty.
struct Gain {
  double ms = 0;
  double error = 0;  // standard deviation
};

/// Computes the gains of maps over one map, by estimated times on the same tokens.
class GainEstimator {
 public:
  GainEstimator(const RoutedTokens& tokens, const ExpertMap& before, const PlaceOptions& options)
      : tokens_(tokens), options_(options), topology_(options.topology()), before_(time(tokens, before)) {
    for (std::size_t part = 0; part < kParts; ++part) {
      parts_.push_back(part_of(tokens, part, kParts));
      before_of_part_.push_back(time(parts_.back(), before));
    }
  }

  /// The figure of the map that others are compared with.
  [[nodiscard]] double before() const { return before_; }

  [[nodiscard]] Gain gain(const ExpertMap& after) const {
    std::vector<double> gains;
    for (std::size_t part = 0; part < kParts; ++part)
      gains.push_back(before_of_part_[part] - time(parts_[part], after));
    const double mean = std::accumulate(gains.begin(), gains.end(), 0.0) / kParts;
    double squares = 0;
    for (const double gain : gains) squares += (gain - mean) * (gain - mean);
    return {before_ - time(tokens_, after), std::sqrt(squares / (kParts * (kParts - 1)))};
  }

 private:
  static constexpr std::size_t kParts = 16;

  [[nodiscard]] double time(const RoutedTokens& tokens, const ExpertMap& map) const {
    return score(tokens, map, topology_, options_.cost).estimated_ms;
  }

  const RoutedTokens& tokens_;
  const PlaceOptions& options_;
  Topology topology_;
  double before_;
  std::vector<RoutedTokens> parts_;
  std::vector<double> before_of_part_;
};

}  // namespace

std::vector<Move> moves_between(const ExpertMap& from, const ExpertMap& to) {
  std::vector<Move> moves;
  for (std::int32_t expert = 0; expert < from.num_experts(); ++expert) {
    const RankId here = from.rank(from.copies(ExpertId(expert)).front());
    const RankId there = to.rank(to.copies(ExpertId(expert)).front());
    if (here != there) moves.push_back({ExpertId(expert), here, there});
  }
  return moves;
}

ExpertMap relabelled(const ExpertMap& fresh, const ExpertMap& current, const Topology& topology) {
  const auto num_ranks = static_cast<std::size_t>(topology.num_ranks());
  std::vector<std::vector<double>> shared(num_ranks, std::vector<double>(num_ranks));  // [fresh rank, current rank]
  for (std::int32_t expert = 0; expert < fresh.num_experts(); ++expert)
    for (const PhysicalId copy : fresh.copies(ExpertId(expert)))
      for (const PhysicalId now : current.copies(ExpertId(expert)))
        shared[fresh.rank(copy).index()][current.rank(now).index()] += 1;

  // The best pairing of ranks for each pair of nodes, then the best pairing of nodes.
  const auto num_nodes = static_cast<std::size_t>(topology.num_nodes());
  std::vector<std::vector<double>> worth(num_nodes, std::vector<double>(num_nodes));
  std::vector<std::vector<std::vector<std::size_t>>> pairing(num_nodes,
                                                             std::vector<std::vector<std::size_t>>(num_nodes));
  for (std::size_t a = 0; a < num_nodes; ++a)
    for (std::size_t b = 0; b < num_nodes; ++b) {
      const auto from = topology.ranks(NodeId(a)), to = topology.ranks(NodeId(b));
      SHUNT_CHECK(from.size() == to.size());
      std::vector<std::vector<double>> inside(from.size(), std::vector<double>(to.size()));
      for (std::size_t i = 0; i < from.size(); ++i)
        for (std::size_t j = 0; j < to.size(); ++j) inside[i][j] = shared[from[i].index()][to[j].index()];
      pairing[a][b] = best_assignment(inside);
      for (std::size_t i = 0; i < from.size(); ++i) worth[a][b] += inside[i][pairing[a][b][i]];
    }
  const auto node_of = best_assignment(worth);

  std::vector<std::vector<ExpertId>> placement(num_ranks);
  ExpertMap::Shares shares(num_ranks);
  for (std::size_t node = 0; node < num_nodes; ++node) {
    const auto from = topology.ranks(NodeId(node)), to = topology.ranks(NodeId(node_of[node]));
    for (std::size_t i = 0; i < from.size(); ++i) {
      const std::size_t new_rank = to[pairing[node][node_of[node]][i]].index();
      for (std::int32_t local = 0; local < fresh.num_local(from[i]); ++local) {
        const PhysicalId copy(fresh.first_physical(from[i]).value + local);
        placement[new_rank].push_back(fresh.logical(copy));
        shares[new_rank].push_back(fresh.share(copy));
      }
    }
  }
  return ExpertMap::from_placement(fresh.num_experts(), placement, shares);
}

DriftChoices drift_choices(const RoutedTokens& window, const ExpertMap& current, const DriftOptions& options) {
  if (current.has_replicas() || options.place.replicas > 0)
    fail(ErrorCode::unsupported, "drift: experts have copies; following drift needs maps without");
  const Topology topology = options.place.topology();
  const RoutedTokens searched = part_of(window, 0, 2), judged = part_of(window, 1, 2);
  const GainEstimator seen(searched, current, options.place), unseen(judged, current, options.place);
  DriftChoices choices{{current}, {}};
  DriftStep& stay = choices.stay;
  stay.stale_ms = stay.after_ms = unseen.before();
  const auto pays = [&](const Gain& gain) {
    return gain.ms >= options.least_gain * stay.stale_ms && gain.ms > options.least_certainty * gain.error;
  };

  const Placed placed = place(Method::shunt, searched, options.place);
  const ExpertMap fresh = relabelled(placed.map, current, topology);
  const Gain fresh_gain = unseen.gain(fresh);
  stay.fresh_ms = stay.stale_ms - fresh_gain.ms;
  stay.fresh_moves = std::ssize(moves_between(current, fresh));
  if (!pays(fresh_gain)) return choices;

  std::vector<std::int64_t> most_moves;
  for (const double share : {1.0 / 6, 1.0 / 4, 1.0 / 3, 1.0 / 2, 2.0 / 3})
    most_moves.push_back(static_cast<std::int64_t>(share * static_cast<double>(stay.fresh_moves)));
  const std::optional<double> asked = options.place.load_limit;
  const double limit = asked ? *asked : *placed.load_limit * kSlackOfLoad;
  for (ExpertMap& map : maps_near(searched, current, fresh, limit, most_moves, options.place)) {
    if (asked && score(window, map, topology, options.place.cost).load > *asked) continue;
    const Gain gain = unseen.gain(map);
    if (!pays(gain)) continue;
    DriftStep step = stay;
    step.moves = moves_between(current, map);
    step.after_ms -= gain.ms;
    step.moving_ms = moving_ms(step.moves, options, topology);
    step.worth_ms = (gain.ms + seen.gain(map).ms) / 2 * options.horizon_steps - step.moving_ms;
    step.map = std::move(map);
    if (step.worth_ms > 0) choices.steps.push_back(std::move(step));
  }
  return choices;
}

// A knapsack problem over moves, with one choice per layer.
std::vector<DriftStep> choose(std::span<const DriftChoices> layers, const DriftOptions& options) {
  std::int64_t fresh_moves = 0;
  for (const DriftChoices& layer : layers)
    if (!layer.steps.empty()) fresh_moves += layer.stay.fresh_moves;
  const auto room = static_cast<std::size_t>(options.most_moves * static_cast<double>(fresh_moves)) + 1;
  std::vector<double> worth(room);  // [moves]: the largest worth of the layers so far with at most that many moves
  std::vector<std::vector<const DriftStep*>> chosen;  // [layers, moves]
  for (const DriftChoices& layer : layers) {
    const std::vector<double> before = worth;
    std::vector<const DriftStep*>& steps = chosen.emplace_back(room, &layer.stay);
    for (const DriftStep& step : layer.steps)
      for (std::size_t moves = step.moves.size(); moves < room; ++moves)
        if (const double with = before[moves - step.moves.size()] + step.worth_ms; with > worth[moves]) {
          worth[moves] = with;
          steps[moves] = &step;
        }
  }
  std::vector<DriftStep> result;
  std::size_t left = room - 1;
  for (std::size_t i = layers.size(); i-- > 0;) {
    result.push_back(*chosen[i][left]);
    left -= result.back().moves.size();
  }
  std::reverse(result.begin(), result.end());
  return result;
}

}  // namespace shunt::placement
