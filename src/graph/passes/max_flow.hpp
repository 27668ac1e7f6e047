// The maximum flow through a network, by Dinic's algorithm.
#pragma once

#include <cstddef>
#include <vector>

namespace shunt::graph {

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

}  // namespace shunt::graph
