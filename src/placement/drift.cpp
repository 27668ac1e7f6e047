#include "placement/drift.hpp"

#include <algorithm>
#include <numeric>

#include "core/fail.hpp"
#include "placement/assignment.hpp"
#include "placement/partition_search.hpp"

namespace shunt::placement {
namespace {

/// Every other run of the tokens, beginning with the first or the second.
RoutedTokens every_other_run(const RoutedTokens& tokens, std::size_t which) {
  RoutedTokens some{tokens.num_experts, tokens.topk, {}, {}};
  // Short windows have short runs, so that both halves see all of their time.
  const std::size_t run = std::clamp<std::size_t>(tokens.num_tokens() / 64, 1, kRunTokens);
  for (std::size_t token = 0; token < tokens.num_tokens(); ++token) {
    if (token / run % 2 != which) continue;
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

/// Moving experts to take the last of an imbalance away is not worth it.
constexpr double kSlackOfLoad = 1.05;

struct Plan {
  ExpertMap map;
  std::vector<Move> moves;
  double gain_ms = 0;  // of one shuffle, on the tokens it was searched on
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

DriftStep follow(const RoutedTokens& window, const ExpertMap& current, const DriftOptions& options) {
  if (current.has_replicas())
    fail(ErrorCode::unsupported, "drift: the map has copies of experts; following drift needs a map without");
  const Topology topology = options.place.topology();
  const RoutedTokens searched = every_other_run(window, 0), judged = every_other_run(window, 1);
  const auto time = [&](const RoutedTokens& tokens, const ExpertMap& map) {
    return score(tokens, map, topology, options.place.cost).estimated_ms;
  };
  const double stale_searched = time(searched, current);
  const auto plan_of = [&](ExpertMap map) {
    Plan plan{std::move(map), {}, 0};
    plan.moves = moves_between(current, plan.map);
    plan.gain_ms = stale_searched - time(searched, plan.map);
    return plan;
  };

  const Placed fresh = place(Method::shunt, searched, options.place);
  const Plan anew = plan_of(relabelled(fresh.map, current, topology));
  DriftStep step{current, {}};
  step.stale_ms = step.after_ms = time(judged, current);
  step.fresh_ms = time(judged, anew.map);
  step.fresh_moves = std::ssize(anew.moves);
  if (step.stale_ms - step.fresh_ms < options.least_gain * step.stale_ms || anew.gain_ms <= 0) return step;

  std::vector<Plan> plans = {anew};
  for (ExpertMap& map : maps_near(searched, current, anew.map, *fresh.load_limit * kSlackOfLoad, options.place))
    plans.push_back(plan_of(std::move(map)));

  // Of plans with few moves that pay on tokens they were not made from, the one that gains most on both halves.
  const double most_moves = options.most_moves * static_cast<double>(anew.moves.size());
  double best = 0;
  for (const Plan& plan : plans) {
    if (static_cast<double>(plan.moves.size()) > most_moves) continue;
    const double after = time(judged, plan.map);
    const double gain = step.stale_ms - after;
    const double moving = moving_ms(plan.moves, options, topology);
    if (gain < options.least_gain * step.stale_ms || gain * options.horizon_steps <= moving) continue;
    const double net = (gain + plan.gain_ms) / 2 * options.horizon_steps - moving;
    if (net <= best) continue;
    best = net;
    step.map = plan.map;
    step.moves = plan.moves;
    step.after_ms = after;
    step.moving_ms = moving;
  }
  return step;
}

}  // namespace shunt::placement
