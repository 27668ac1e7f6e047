// Simulates a scheduled step on a cluster: every lane in program order, with contention.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/cost.hpp"
#include "graph/graph.hpp"
#include "graph/program.hpp"

namespace shunt::graph {

struct Timeline {
  struct Span {
    double begin_s = 0, end_s = 0;
  };
  std::vector<Span> spans;  ///< by task of the program

  double step_s = 0;
  double compute_s = 0;  ///< time in which the compute lane is busy, including slowdown by contention
  /// Time in which the compute lane idles while communication is outstanding: an all-to-all (else an all-reduce) is in
  /// flight, or a peer has not joined it yet.
  double exposed_all_to_all_s = 0, exposed_all_reduce_s = 0, late_peer_s = 0;
  double comm_s = 0;                  ///< time in which some communication is in flight
  double near_s = 0, far_s = 0;       ///< … and moves bytes inside nodes; between nodes
  std::vector<TaskId> critical_path;  ///< from the end back: the task that ended last before each task began
  std::vector<double> exposed_by;     ///< by task: its part of exposed_all_to_all_s

  [[nodiscard]] double exposed_s() const { return exposed_all_to_all_s + exposed_all_reduce_s + late_peer_s; }
};

/// The timeline of a rank with mean load. If the costs of the heaviest rank differ, that rank is simulated too and may
/// be late.
Timeline simulate(const Program& program, const Cluster& cluster);

struct Memory {
  std::int64_t fixed_bytes = 0;  ///< inputs, parameters and states
  std::int64_t peak_bytes = 0;   ///< activations and buffers, at their most
};

/// A value lives from the start of its producer to the end of its last user, including users of its views.
Memory memory_of(const Graph& graph, const Program& program, const Timeline& timeline);

/// Lower bound on any schedule of these tasks: the work of each lane and link, and the longest chain.
double least_step_s(const Program& program);

/// A trace for chrome://tracing and Perfetto.
std::string chrome_trace(const Graph& graph, const Program& program, const Timeline& timeline);

}  // namespace shunt::graph
