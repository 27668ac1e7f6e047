// Sensitivity of the outcome to assumptions about a cluster.
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

/// Varies each figure of the cluster alone by a factor of 1 − share and 1 + share; slowdowns stay at least 1. With
/// measured times, these are varied instead of the rates that they replace.
std::vector<Variation> vary(const Cluster& cluster, double share, bool has_measured_times);

}  // namespace shunt::graph
