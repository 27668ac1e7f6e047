#include "graph/variations.hpp"

namespace shunt::graph {
namespace {

struct Assumption {
  const char* name;
  double Cluster::*figure;
  double least;  // what the figure is without it
};

constexpr Assumption kAssumptions[] = {
    {"f32 rate", &Cluster::f32_flops, 0},
    {"bf16 and f16 rate", &Cluster::half_flops, 0},
    {"memory rate", &Cluster::memory_bytes_per_s, 0},
    {"time per kernel", &Cluster::kernel_s, 0},
    {"rate inside nodes", &Cluster::near_bytes_per_s, 0},
    {"rate between nodes", &Cluster::far_bytes_per_s, 0},
    {"time per all-to-all", &Cluster::all_to_all_s, 0},
    {"time per all-reduce", &Cluster::all_reduce_s, 0},
    {"slowdown of compute", &Cluster::compute_slowdown, 1},
};

}  // namespace

std::vector<Variation> vary(const Cluster& cluster, double share) {
  std::vector<Variation> all;
  for (const Assumption& assumption : kAssumptions)
    for (const double factor : {1 - share, 1 + share}) {
      Variation variation{assumption.name, factor, cluster};
      double& figure = variation.cluster.*assumption.figure;
      figure = assumption.least + (figure - assumption.least) * factor;
      all.push_back(std::move(variation));
    }
  return all;
}

}  // namespace shunt::graph
