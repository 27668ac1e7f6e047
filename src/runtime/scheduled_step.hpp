// A model's training step in the order of a schedule that is made from measured times.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/model.hpp"
#include "runtime/profile.hpp"

namespace shunt::runtime {

/// plain: program order. tutel: shuffles and experts pipelined. lancet: forward ranges pipelined, weight gradients
/// placed greedily. shunt: all passes.
[[nodiscard]] std::vector<std::string> schedule_names();

struct ScheduledStep {
  graph::Graph graph;
  // By simulation; none if nothing was measured.
  double predicted_s = 0;
  std::vector<graph::Timeline::Span> predicted = {};  ///< by op, as StepTimes::ops
};

/// Collective: rank 0 schedules, so that all ranks have the same order. Throws Error(invalid_argument) for an unknown
/// name.
[[nodiscard]] ScheduledStep make_scheduled_step(World& world, const graph::Model& model, std::string_view schedule,
                                                const Profile& profile);

}  // namespace shunt::runtime
