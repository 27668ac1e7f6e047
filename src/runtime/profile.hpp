// Times of single ops on these ranks, measured by executing a model's step whole and in parts.
#pragma once

#include <cstdint>

#include "core/cluster.hpp"
#include "graph/cost_table.hpp"
#include "runtime/trainer.hpp"

namespace shunt::runtime {

struct Profile {
  graph::CostTable table{"cpu"};  ///< compute ops
  Cluster cluster;                ///< communication, by size
};

struct ProfileOptions {
  std::int64_t warmup = 2;
  std::int64_t steps = 5;  ///< measured, of each number of parts
};

/// Collective: trains a copy of the model for a few steps in program order, one transfer at a time, with the batch
/// whole and in 2 and 4 parts. Times are medians over the steps. A compute op takes the mean over the ranks; a transfer
/// takes the least, because its time on other ranks includes their wait for that one. All ranks get the same result.
[[nodiscard]] Profile measure_profile(World& world, const graph::Model& model, const Corpus& corpus,
                                      const TrainerOptions& training, const ProfileOptions& options = {});

}  // namespace shunt::runtime
