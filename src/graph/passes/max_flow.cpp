#include "graph/passes/max_flow.hpp"

#include <algorithm>
#include <limits>
#include <queue>

namespace shunt::graph {
namespace {

constexpr double kNothing = 1e-15;

}  // namespace

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

}  // namespace shunt::graph
