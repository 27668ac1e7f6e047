#include "graph/variations.hpp"

#include <algorithm>

namespace shunt::graph {
namespace {

struct Assumption {
  const char* name;
  double Cluster::*figure;
  double least = 0;
  bool is_of_compute = false;
};

constexpr Assumption kAssumptions[] = {
    {"f32 rate", &Cluster::f32_flops, 0, true},
    {"bf16 and f16 rate", &Cluster::half_flops, 0, true},
    {"memory rate", &Cluster::memory_bytes_per_s, 0, true},
    {"time per kernel", &Cluster::kernel_s},
    {"rate inside nodes", &Cluster::near_bytes_per_s},
    {"rate between nodes", &Cluster::far_bytes_per_s},
    {"time per all-to-all", &Cluster::all_to_all_s},
    {"time per all-reduce", &Cluster::all_reduce_s},
    {"slowdown of compute", &Cluster::compute_slowdown, 1},
    {"slowdown of links", &Cluster::comm_slowdown, 1},
};

}  // namespace

std::vector<Variation> vary(const Cluster& cluster, double share, bool has_measured_times) {
  std::vector<Variation> all;
  for (const double factor : {1 - share, 1 + share})
    if (has_measured_times) all.push_back({"measured times", factor, cluster, factor});
  for (const Assumption& assumption : kAssumptions)
    for (const double factor : {1 - share, 1 + share}) {
      if (assumption.is_of_compute && has_measured_times) continue;
      Variation variation{assumption.name, factor, cluster, 1};
      double& figure = variation.cluster.*assumption.figure;
      figure = std::max(assumption.least, figure * factor);
      all.push_back(std::move(variation));
    }
  return all;
}

}  // namespace shunt::graph
