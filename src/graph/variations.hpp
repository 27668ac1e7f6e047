// How much the outcome hangs on what was assumed of a cluster.
#pragma once

#include <string>
#include <vector>

#include "graph/cluster.hpp"

namespace shunt::graph {

struct Variation {
  std::string assumption;
  double factor = 1;
  Cluster cluster;
};

/// Each figure of the cluster alone, `share` of it less and more; of slowdowns, what exceeds 1.
std::vector<Variation> vary(const Cluster& cluster, double share);

}  // namespace shunt::graph
