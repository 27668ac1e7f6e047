// Passes, and the runner around each of them: off-switch, timer, verifier, and a check that the step is not slower.
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
  double dw_seconds = 1;  ///< time for the exact search that places weight gradients
  std::vector<LayerNote> notes;
  const Graph* step = nullptr;  ///< set by the runner: the input of the first pass; null: the input of this pass
  bool is_dw_used = false;      ///< set by the runner: the result of the exact search was kept
  double dw_gap = 0;            ///< distance of the last search to its proven bound; 0: optimal
  double dw_gained = 0;         ///< coverage of the exact search minus that of the greedy one, relative to the bound
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
  /// Relative distance of the step to the lower bound on any schedule of the same ops.
  [[nodiscard]] double step_gap() const { return timeline.step_s / least_step_s - 1; }
  /// Composition of the critical path.
  double critical_compute_s = 0, critical_all_to_all_s = 0, critical_all_reduce_s = 0;
};
Outcome evaluate(const Graph& graph, const CostModel& cost);
/// The same for a program of the graph whose tasks may be in another order than its ops.
Outcome evaluate(const Graph& graph, const Program& program, const Cluster& cluster);

struct PassReport {
  std::string_view name;
  double seconds = 0;
  double step_before_s = 0, step_after_s = 0;
  bool is_kept = false;  ///< its result was better or equal
};

/// In the order in which they run.
std::span<const Pass> all_passes();

/// Runs the passes whose names `is_on` accepts. Each result is verified; it is discarded if it is slower than the
/// pass's input, or as fast but larger, or exceeds the memory cap. Throws Error(invalid_argument) if nothing satisfies
/// the cap.
Graph run_passes(Graph graph, PassContext& context, const std::function<bool(std::string_view)>& is_on,
                 std::vector<PassReport>& reports);

}  // namespace shunt::graph
