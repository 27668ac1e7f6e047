// A cluster on which small graphs have exposed communication.
#pragma once

#include "core/cluster.hpp"

namespace shunt::graph::test {

inline Cluster slow_cluster() {
  Cluster cluster = Cluster::load("v100x16");
  cluster.far_bytes_per_s = 4e6;
  cluster.f32_flops = 1e9;
  cluster.memory_bytes_per_s = 1e9;
  cluster.tile = 2;
  return cluster;
}

}  // namespace shunt::graph::test
