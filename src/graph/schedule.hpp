// Makes a scheduled training step from a model and a cluster, and the steps that it is compared with.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "graph/model.hpp"
#include "graph/passes/pass.hpp"

namespace shunt::graph {

struct ScheduleOptions {
  std::int64_t memory_cap_bytes = 0;  ///< for activations and buffers; 0: none
  std::set<std::string> passes;       ///< by name; empty: all
  double dw_seconds = 1;
};

/// One layer's shuffle: its exposed times before and after, and what was done about it.
struct LayerReport {
  std::int32_t layer = 0;
  double forward_before_s = 0, forward_after_s = 0, backward_before_s = 0, backward_after_s = 0;
  std::string what;
};

struct Schedule {
  Graph graph;
  Outcome before, tutel, after;
  std::int32_t tutel_parts = 1;
  double tutel_apart_s = 0;  ///< tutel's step if forward and backward could have different numbers of parts
  std::vector<PassReport> passes;
  std::vector<LayerReport> layers;
  bool is_dw_used = false;
  double dw_gap = 0, dw_gained = 0;
  double plain_share = 0;   ///< time of all-to-alls over that of all-to-alls and compute, each on its own
  double step_share = 0;    ///< time of all-to-alls on their own over that of the step before
  double plan_seconds = 0;  ///< time for building, differentiating and all passes, without baselines
};

/// Throws Error(invalid_argument) for an unknown pass, and if no schedule satisfies the cap.
Schedule make_schedule(const Model& model, const CostModel& cost, const ScheduleOptions& options);

/// Checks, before the first step, the hashes that all ranks gathered of their graphs, by rank: ranks with different
/// schedules would wait for each other forever. Throws Error(mismatch) that names the ranks that differ.
void check_same_schedule(std::span<const std::uint64_t> hashes);

}  // namespace shunt::graph
