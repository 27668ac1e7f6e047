// How much the outcome hangs on what was assumed of a cluster.
#pragma once

#include <string>
#include <vector>

#include "core/cluster.hpp"

namespace shunt::graph {

struct Variation {
  std::string assumption;
  double factor = 1;
  Cluster cluster;
  double measured_scale = 1;  ///< as in CostSources
};

/// Each figure of the cluster alone, `share` of it less and more; slowdowns are at least 1. With measured times these
/// are varied in place of the rates that they replace.
std::vector<Variation> vary(const Cluster& cluster, double share, bool has_measured_times);

}  // namespace shunt::graph
