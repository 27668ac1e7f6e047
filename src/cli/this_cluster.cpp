#include "cli/this_cluster.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include "cli/machine_speed.hpp"
#include "shunt/machine.hpp"

namespace shunt::cli {
namespace {

constexpr double kMicrosecond = 1e-6, kGiga = 1e9;

/// Of a product that fits the caches, row by row; libraries are faster.
double measure_flops() {
  constexpr std::size_t kSize = 256;
  std::vector<float> a(kSize * kSize, 1.0f), b(kSize * kSize, 0.5f), c(kSize * kSize, 0.0f);
  using Clock = std::chrono::steady_clock;
  double best_s = 1e9;
  for (int repeat = 0; repeat < 10; ++repeat) {
    const auto start = Clock::now();
    for (std::size_t i = 0; i < kSize; ++i)
      for (std::size_t k = 0; k < kSize; ++k) {
        const float factor = a[i * kSize + k];
        for (std::size_t j = 0; j < kSize; ++j) c[i * kSize + j] += factor * b[k * kSize + j];
      }
    best_s = std::min(best_s, std::chrono::duration<double>(Clock::now() - start).count());
    a[static_cast<std::size_t>(repeat)] = c[0];  // so that no repeat can be left out
  }
  return 2.0 * kSize * kSize * kSize / best_s;
}

}  // namespace

Cluster measure_this_cluster() {
  const Machine machine = Machine::detect();
  Cluster cluster;
  cluster.name = "this";
  cluster.origin = "measured on " + machine.cpu;
  cluster.device = "cpu";
  cluster.ranks_per_node = std::clamp(machine.cores, 1, 8);
  const MachineSpeed speed = measure_machine(cluster.ranks_per_node);
  const double copied = std::max(speed.memcpy_gbps, speed.streaming_gbps) * kGiga / cluster.ranks_per_node;
  cluster.memory_bytes_per_s = copied;
  cluster.near_bytes_per_s = cluster.far_bytes_per_s = copied / 2;  // a row that moves is read and written
  cluster.f32_flops = cluster.half_flops = measure_flops();
  cluster.all_to_all_s = cluster.all_reduce_s = speed.barrier_us * kMicrosecond;
  cluster.comm_workers = 1;
  return cluster;
}

}  // namespace shunt::cli
