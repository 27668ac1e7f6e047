// Training steps in several schedules, measured in turn on the same batches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/scheduled_step.hpp"

namespace shunt::bench {

struct TrainConfig {
  graph::Model model;
  std::vector<std::string> schedules;  ///< the first is what others are compared with
  runtime::TrainerOptions training;
  std::int64_t warmup = 2, turns = 7;  ///< a turn is one step of each schedule
  /// The share of the first schedule's step that communication shall be exposed, from 0 to 1: the rate of the links of
  /// tools/netcluster is set so; 0: links stay as they are.
  double exposed_share = 0;
  bool evaluates = false;  ///< the held-out text, at the end
  bool progress = false;
};

/// One schedule's steps.
struct TrainResult {
  std::string schedule;
  double predicted_ms = 0;
  std::vector<double> step_ms, exposed_ms;  ///< by turn; of the slowest rank
  double products_ms = 0, other_ms = 0;     ///< compute of rank 0: medians over the turns
  std::vector<double> losses;               ///< bits per byte of every step, warm-up included
  std::uint64_t sent_bytes = 0;             ///< to other machines, by all ranks in one step
  std::int64_t equal_steps = 0;             ///< until a loss differs by more than 1e-5 from the first schedule's
  double held_out = 0;                      ///< bits per byte after all turns; 0: not evaluated
  std::size_t memory_bytes = 0;
  std::int64_t growths_after_warmup = 0;
  graph::Graph step{"", 1};
  std::vector<graph::Timeline::Span> measured, predicted;  ///< by op of the step: rank 0's last turn, and simulated

  [[nodiscard]] double median_step_ms() const;
  [[nodiscard]] double median_exposed_ms() const;
};

struct TrainReport {
  std::vector<TrainResult> results;
  double rate_mbit = 0;     ///< that exposed_share has set; 0: none
  double stolen_share = 0;  ///< of this machine's processor time, taken by other virtual machines meanwhile
};

/// Collective; the report is rank 0's. Throws Error(internal) if a schedule does not compute what the first one does:
/// if the loss of the first step differs by more than 1e-5, or the mean loss by more than 1 %.
TrainReport measure_training(World& world, const TrainConfig& config, const runtime::Corpus& corpus);

}  // namespace shunt::bench
