// The contents of a report of training runs: `shunt train --json` and `shunt bench train --json`.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/report/timeline.hpp"
#include "core/json_fields.hpp"

namespace shunt::cli {

struct TrainingReport {
  struct HeldOut {
    std::int64_t step = 0;
    double bits_per_byte = 0;
    std::optional<double> seconds;  ///< since the run began
  };

  struct Run {
    std::string schedule, shuffle, placement;  ///< the last two may be empty: not given
    std::optional<std::int64_t> prune;
    double step_ms = 0;
    std::optional<double> exposed_comm_ms, products_ms, other_compute_ms, predicted_step_ms;
    std::optional<std::int64_t> cross_node_bytes;
    std::vector<double> losses;  ///< bits per byte of each step's batch
    std::vector<HeldOut> held_out;
    std::vector<Lane> measured, predicted;  ///< with at least one span each; kinds are indices of kPhases
    std::size_t ranks = 0;                  ///< of traffic; 0: not given
    std::vector<std::int64_t> traffic;      ///< [ranks, ranks], rows of tensors by source and destination
  };

  /// Of a span; the last is that of spans without a phase.
  static constexpr std::array<const char*, 4> kPhases = {"forward", "backward", "update", "no phase"};

  std::string name;                                         ///< of the file, for the page
  std::vector<std::pair<std::string, std::string>> config;  ///< key, value; without what is no text, number or boolean
  std::vector<Run> runs;                                    ///< at least one

  /// The value of a key of `config`; empty if it is missing.
  [[nodiscard]] std::string setting(const std::string& key) const;
};

/// Throws Error(invalid_argument) with `source`, the file, and the key of a value that is missing or has the wrong
/// type.
TrainingReport read_training_report(const std::string& source, const nlohmann::json& content);

}  // namespace shunt::cli
