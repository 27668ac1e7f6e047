// Passes, and the one runner around them: off-switch, timer, verifier, and no step for the worse.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/cost.hpp"
#include "graph/graph.hpp"
#include "graph/simulate.hpp"

namespace shunt::graph {

/// What was done to a layer's shuffle, and why.
struct LayerNote {
  std::int32_t layer = -1;
  std::string what;
};

struct PassContext {
  const CostModel& cost;
  std::int64_t memory_cap_bytes = 0;  ///< for activations and buffers; 0: none
  bool interleaves_micro_batches = false;
  double dw_seconds = 1;  ///< how long the exact search for places of weight gradients may take
  std::vector<LayerNote> notes;
  const Graph* step = nullptr;  ///< set by the runner: what the first pass was given; null: what this one is
  bool is_dw_used = false;      ///< set by the runner: whether the result of that search was kept
  double dw_gap = 0;            ///< of the last search, to its proven bound; 0: optimal
  double dw_gained = 0;         ///< coverage of the exact search over that of the greedy, relative to the bound
};

struct Pass {
  std::string_view name;
  std::string_view purpose;
  Graph (*apply)(const Graph& graph, PassContext& context);
};

/// Simulated figures of a scheduled graph.
struct Outcome {
  Timeline timeline;
  Memory memory;
  double least_step_s = 0;
  /// How far the step is from what no schedule of the same ops can beat.
  [[nodiscard]] double step_gap() const { return timeline.step_s / least_step_s - 1; }
  /// What the critical path consists of.
  double critical_compute_s = 0, critical_all_to_all_s = 0, critical_all_reduce_s = 0;
};
Outcome evaluate(const Graph& graph, const CostModel& cost);
/// The same for a program of the graph whose tasks may stand in another order than its ops.
Outcome evaluate(const Graph& graph, const Program& program, const Cluster& cluster);

struct PassReport {
  std::string_view name;
  double seconds = 0;
  double step_before_s = 0, step_after_s = 0;
  bool is_kept = false;  ///< its result was better, or equal
};

/// In the order in which they run.
std::span<const Pass> all_passes();

/// Runs those passes whose names `is_on` accepts. Each result is verified; one that is slower than what the pass was
/// given, or as fast but larger, or exceeds the memory cap, is dropped. Throws Error(invalid_argument) if nothing obeys
/// the cap.
Graph run_passes(Graph graph, PassContext& context, const std::function<bool(std::string_view)>& is_on,
                 std::vector<PassReport>& reports);

}  // namespace shunt::graph
