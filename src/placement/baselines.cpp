#include "placement/baselines.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "placement/swap_tables.hpp"

namespace shunt::placement {
namespace {

/// Divides `total` into `parts` numbers that differ by at most one, the first ones being larger.
std::vector<std::size_t> even_parts(std::size_t total, std::size_t parts) {
  std::vector<std::size_t> sizes(parts, total / parts);
  for (std::size_t i = 0; i < total % parts; ++i) ++sizes[i];
  return sizes;
}

std::vector<std::size_t> heaviest_first(std::span<const double> weights) {
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
  return order;
}

/// Packs the heaviest item first, each into the lightest bin that has room and does not hold the same expert. If only
/// bins with the same expert have room, an item of another bin is moved there.
std::vector<std::vector<std::size_t>> pack(std::span<const double> weights, std::span<const std::size_t> expert_of,
                                           std::span<const std::size_t> room) {
  std::vector<std::vector<std::size_t>> bins(room.size());
  std::vector<double> load(room.size());
  const auto holds = [&](std::size_t bin, std::size_t expert) {
    return std::any_of(bins[bin].begin(), bins[bin].end(), [&](std::size_t i) { return expert_of[i] == expert; });
  };
  const auto put = [&](std::size_t item, std::size_t bin) {
    bins[bin].push_back(item);
    load[bin] += weights[item];
  };
  for (const std::size_t item : heaviest_first(weights)) {
    std::size_t lightest = room.size(), with_room = room.size();
    for (std::size_t bin = 0; bin < room.size(); ++bin) {
      if (bins[bin].size() == room[bin]) continue;
      with_room = bin;
      if (!holds(bin, expert_of[item]) && (lightest == room.size() || load[bin] < load[lightest])) lightest = bin;
    }
    if (lightest != room.size()) {
      put(item, lightest);
      continue;
    }
    for (std::size_t bin = 0; bin < room.size(); ++bin) {
      if (bin == with_room || holds(bin, expert_of[item])) continue;
      const auto way = std::find_if(bins[bin].begin(), bins[bin].end(),
                                    [&](std::size_t other) { return !holds(with_room, expert_of[other]); });
      if (way == bins[bin].end()) continue;
      const std::size_t other = *way;
      bins[bin].erase(way);
      load[bin] -= weights[other];
      put(other, with_room);
      put(item, bin);
      break;
    }
  }
  return bins;
}

}  // namespace

std::vector<std::int32_t> occult_greedy(std::span<const std::int64_t> co_activation, std::size_t num_experts,
                                        std::size_t num_ranks) {
  constexpr std::int32_t kUnplaced = -1;
  std::vector<std::int32_t> rank_of(num_experts, kUnplaced);
  const auto together = [&](std::size_t a, std::size_t b) { return a == b ? 0 : co_activation[a * num_experts + b]; };
  const auto room = even_parts(num_experts, num_ranks);
  std::vector<std::int64_t> to_placed(
      num_experts);  // co-activation with all placed experts, and with those of this rank
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    std::vector<std::int64_t> to_rank(num_experts);
    std::size_t held = 0;
    const auto place = [&](std::size_t expert) {
      rank_of[expert] = static_cast<std::int32_t>(rank);
      ++held;
      for (std::size_t other = 0; other < num_experts; ++other) {
        to_placed[other] += together(expert, other);
        to_rank[other] += together(expert, other);
      }
    };
    /// The unplaced expert with the largest score; the first among equals.
    const auto best = [&](const auto& score) {
      std::size_t found = num_experts;
      for (std::size_t expert = 0; expert < num_experts; ++expert)
        if (rank_of[expert] == kUnplaced && (found == num_experts || score(expert) > score(found))) found = expert;
      return found;
    };
    if (room[rank] == 0) break;
    if (rank == 0) {
      place(best([&](std::size_t expert) {
        std::int64_t strongest = 0;
        for (std::size_t other = 0; other < num_experts; ++other)
          strongest = std::max(strongest, together(expert, other));
        return strongest;
      }));
    } else {
      place(best([&](std::size_t expert) { return -to_placed[expert]; }));
    }
    while (held < room[rank]) place(best([&](std::size_t expert) { return to_rank[expert]; }));
  }
  return rank_of;
}

std::optional<std::vector<std::int32_t>> occult_repaired(const PartitionProblem& problem,
                                                         std::span<const std::int32_t> greedy) {
  SwapTables tables(problem.sample, problem.num_experts(), problem.num_ranks());
  tables.assign(greedy);
  std::vector<double> load = problem.rank_loads(greedy);
  for (;;) {
    const auto busiest = static_cast<std::size_t>(std::max_element(load.begin(), load.end()) - load.begin());
    if (load[busiest] <= problem.most_load * (1 + 1e-12))
      return std::vector<std::int32_t>(tables.groups().begin(), tables.groups().end());
    std::size_t best_a = 0, best_b = 0;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    // A swap must remove at least a twentieth of the excess: the cheapest swap would remove next to nothing, so the
    // loop would not terminate.
    const double least_moved = (load[busiest] - problem.most_load) / 20;
    for (std::size_t a = 0; a < problem.num_experts(); ++a) {
      if (static_cast<std::size_t>(tables.group(a)) != busiest) continue;
      for (std::size_t b = 0; b < problem.num_experts(); ++b) {
        const auto other = static_cast<std::size_t>(tables.group(b));
        const double moved = problem.load[a] - problem.load[b];
        if (other == busiest || moved < least_moved || load[other] + moved > load[busiest] - least_moved) continue;
        const SwapTables::Change change = tables.change(a, b);
        const std::int64_t cost = std::int64_t{change.at_a} + change.at_b;
        if (cost >= least) continue;
        least = cost;
        best_a = a;
        best_b = b;
      }
    }
    if (least == std::numeric_limits<std::int64_t>::max()) return std::nullopt;
    tables.swap(best_a, best_b);
    load = problem.rank_loads(tables.groups());
  }
}

ExpertMap load_only(std::span<const std::int64_t> rows, const Topology& topology, std::int32_t places) {
  const std::size_t num_experts = rows.size();
  const auto num_nodes = static_cast<std::size_t>(topology.num_nodes());
  const std::vector<double> weights(rows.begin(), rows.end());
  std::vector<std::size_t> each(num_experts);
  std::iota(each.begin(), each.end(), std::size_t{0});
  const auto places_of_node = even_parts(static_cast<std::size_t>(places), num_nodes);

  std::vector<std::vector<ExpertId>> placement(topology.nodes().size());
  const auto nodes = pack(weights, each, even_parts(num_experts, num_nodes));
  for (std::size_t node = 0; node < num_nodes; ++node) {
    const auto ranks = topology.ranks(NodeId(node));
    // The expert with the most rows per copy gets the next copy, at most one per rank.
    std::vector<std::size_t> copies(nodes[node].size(), 1);
    for (std::size_t taken = copies.size(); taken < places_of_node[node]; ++taken) {
      std::size_t next = copies.size();
      for (std::size_t i = 0; i < copies.size(); ++i) {
        const auto per_copy = [&](std::size_t j) { return weights[nodes[node][j]] / static_cast<double>(copies[j]); };
        if (copies[i] < ranks.size() && (next == copies.size() || per_copy(i) > per_copy(next))) next = i;
      }
      if (next == copies.size()) break;
      ++copies[next];
    }
    std::vector<double> weight_of;
    std::vector<std::size_t> expert_of;
    for (std::size_t i = 0; i < copies.size(); ++i)
      for (std::size_t copy = 0; copy < copies[i]; ++copy) {
        weight_of.push_back(weights[nodes[node][i]] / static_cast<double>(copies[i]));
        expert_of.push_back(nodes[node][i]);
      }
    const auto bins = pack(weight_of, expert_of, even_parts(weight_of.size(), ranks.size()));
    for (std::size_t i = 0; i < ranks.size(); ++i)
      for (const std::size_t item : bins[i]) placement[ranks[i].index()].emplace_back(expert_of[item]);
  }
  return ExpertMap::from_placement(static_cast<std::int32_t>(num_experts), placement);
}

std::vector<std::int32_t> balance(std::span<const std::int64_t> rows, std::span<const std::int32_t> rank_of,
                                  std::size_t num_ranks) {
  std::vector<std::int32_t> result(rank_of.begin(), rank_of.end());
  std::vector<std::int64_t> load(num_ranks);
  for (std::size_t expert = 0; expert < rows.size(); ++expert)
    load[static_cast<std::size_t>(result[expert])] += rows[expert];
  for (;;) {
    const auto busiest = static_cast<std::size_t>(std::max_element(load.begin(), load.end()) - load.begin());
    std::size_t best_a = 0, best_b = 0;
    std::int64_t least = load[busiest];
    for (std::size_t a = 0; a < rows.size(); ++a) {
      if (static_cast<std::size_t>(result[a]) != busiest) continue;
      for (std::size_t b = 0; b < rows.size(); ++b) {
        const auto other = static_cast<std::size_t>(result[b]);
        const std::int64_t moved = rows[a] - rows[b];
        const std::int64_t larger = std::max(load[busiest] - moved, load[other] + moved);
        if (other == busiest || larger >= least) continue;
        least = larger;
        best_a = a;
        best_b = b;
      }
    }
    if (least == load[busiest]) return result;
    const auto other = static_cast<std::size_t>(result[best_b]);
    load[busiest] -= rows[best_a] - rows[best_b];
    load[other] += rows[best_a] - rows[best_b];
    std::swap(result[best_a], result[best_b]);
  }
}

}  // namespace shunt::placement
