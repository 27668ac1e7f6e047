#include "graph/passes/coverage_bounds.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <queue>
#include <vector>

namespace shunt::graph {
namespace {

constexpr double kNothing = 1e-15;

/// The maximum flow through a network, by Dinic's algorithm.
class MaxFlow {
 public:
  explicit MaxFlow(std::size_t vertices) : edges_of_(vertices) {}

  void add_edge(std::size_t from, std::size_t to, double capacity);
  double run(std::size_t source, std::size_t sink);

 private:
  struct Edge {
    std::size_t to;
    double left;
  };
  bool find_levels(std::size_t source, std::size_t sink);
  double push(std::size_t vertex, std::size_t sink, double most);

  std::vector<Edge> edges_;  // each edge is followed by its reverse
  std::vector<std::vector<std::size_t>> edges_of_;
  std::vector<int> level_;
  std::vector<std::size_t> next_;
};

void MaxFlow::add_edge(std::size_t from, std::size_t to, double capacity) {
  edges_of_[from].push_back(edges_.size());
  edges_.push_back({to, capacity});
  edges_of_[to].push_back(edges_.size());
  edges_.push_back({from, 0});
}

bool MaxFlow::find_levels(std::size_t source, std::size_t sink) {
  level_.assign(edges_of_.size(), -1);
  level_[source] = 0;
  std::queue<std::size_t> queue({source});
  for (; !queue.empty(); queue.pop())
    for (const std::size_t edge : edges_of_[queue.front()]) {
      if (edges_[edge].left <= kNothing || level_[edges_[edge].to] >= 0) continue;
      level_[edges_[edge].to] = level_[queue.front()] + 1;
      queue.push(edges_[edge].to);
    }
  return level_[sink] >= 0;
}

double MaxFlow::push(std::size_t vertex, std::size_t sink, double most) {
  if (vertex == sink) return most;
  for (std::size_t& i = next_[vertex]; i < edges_of_[vertex].size(); ++i) {
    const std::size_t edge = edges_of_[vertex][i];
    if (edges_[edge].left <= kNothing || level_[edges_[edge].to] != level_[vertex] + 1) continue;
    const double pushed = push(edges_[edge].to, sink, std::min(most, edges_[edge].left));
    if (pushed <= 0) continue;
    edges_[edge].left -= pushed;
    edges_[edge ^ 1].left += pushed;
    return pushed;
  }
  return 0;
}

double MaxFlow::run(std::size_t source, std::size_t sink) {
  double total = 0;
  while (find_levels(source, sink)) {
    next_.assign(edges_of_.size(), 0);
    for (double pushed = 1; pushed > 0; total += pushed)
      pushed = push(source, sink, std::numeric_limits<double>::infinity());
  }
  return total;
}

constexpr double kNearEnough = 1e-3;  // of the bound
constexpr double kFirstPrice = 0.5;
constexpr std::uint64_t kMostSteps = 2000;

/// Each gap sells its seconds at a price between 0 and 1; each item buys from the gap that leaves it the most.
struct Market {
  double bound_s = 0;
  std::vector<double> unsold_s;  // by gap; negative: oversold
};

Market clear_market(const CoverageProblem& problem, const std::vector<double>& prices) {
  Market market{0, problem.gaps};
  for (std::size_t gap = 0; gap < prices.size(); ++gap) market.bound_s += prices[gap] * problem.gaps[gap];
  for (std::size_t item = 0; item < problem.items.size(); ++item) {
    double best = 0, bought = 0;
    std::size_t where = 0;
    for (const std::int32_t gap : problem.legal[item]) {
      const auto g = static_cast<std::size_t>(gap);
      const double covers = std::min(problem.items[item], problem.gaps[g]);
      if (covers * (1 - prices[g]) <= best) continue;
      best = covers * (1 - prices[g]);
      bought = covers;
      where = g;
    }
    market.bound_s += best;
    if (best > 0) market.unsold_s[where] -= bought;
  }
  return market;
}

}  // namespace

double flow_bound(const CoverageProblem& problem) {
  const std::size_t items = problem.items.size(), gaps = problem.gaps.size();
  MaxFlow flow(items + gaps + 2);
  const std::size_t source = items + gaps, sink = source + 1;
  for (std::size_t item = 0; item < items; ++item) {
    flow.add_edge(source, item, problem.items[item]);
    for (const std::int32_t gap : problem.legal[item])
      flow.add_edge(item, items + static_cast<std::size_t>(gap), problem.items[item]);
  }
  for (std::size_t gap = 0; gap < gaps; ++gap) flow.add_edge(items + gap, sink, problem.gaps[gap]);
  return flow.run(source, sink);
}

double dual_bound(const CoverageProblem& problem, double covered_s, std::uint64_t most_looks) {
  std::uint64_t pairs = 1;
  for (const auto& legal : problem.legal) pairs += legal.size();
  const std::uint64_t steps = std::min(kMostSteps, most_looks / pairs);
  std::vector<double> prices(problem.gaps.size(), kFirstPrice);
  double best = std::numeric_limits<double>::infinity();
  for (std::uint64_t step = 0; step < steps; ++step) {
    const Market market = clear_market(problem, prices);
    best = std::min(best, market.bound_s);
    double steepness = 0;
    for (const double unsold : market.unsold_s) steepness += unsold * unsold;
    if (steepness <= 0 || best <= covered_s * (1 + kNearEnough)) break;
    const double length = (market.bound_s - covered_s) / steepness;
    for (std::size_t gap = 0; gap < prices.size(); ++gap)
      prices[gap] = std::clamp(prices[gap] - length * market.unsold_s[gap], 0.0, 1.0);
  }
  return best;
}

}  // namespace shunt::graph
