// From a model and a cluster to a scheduled training step, beside the ones it is compared with.
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

/// A layer's shuffle: what it exposes before and after, and what was done about it.
struct LayerReport {
  std::int32_t layer = 0;
  double forward_before_s = 0, forward_after_s = 0, backward_before_s = 0, backward_after_s = 0;
  std::string what;
};

struct Schedule {
  Graph graph;
  Outcome before, tutel, after;
  std::int32_t tutel_parts = 1;
  double tutel_apart_s = 0;  ///< tutel's step if forward and backward had numbers of parts of their own
  std::vector<PassReport> passes;
  std::vector<LayerReport> layers;
  bool is_dw_used = false;
  double dw_gap = 0, dw_gained = 0;
  double plain_share = 0;   ///< of all-to-alls in all-to-alls and compute, each alone
  double step_share = 0;    ///< of all-to-alls, each alone, in the step before
  double plan_seconds = 0;  ///< building, differentiating and all passes; baselines are not in it
};

/// Throws Error(invalid_argument) for an unknown pass, and for a cap that no schedule obeys.
Schedule make_schedule(const Model& model, const CostModel& cost, const ScheduleOptions& options);

/// Before the first step, on the hashes that all ranks gathered of their graphs, by rank: ranks that follow different
/// schedules would wait for each other for ever. Throws Error(mismatch) that names who differs from whom.
void check_same_schedule(std::span<const std::uint64_t> hashes);

}  // namespace shunt::graph
