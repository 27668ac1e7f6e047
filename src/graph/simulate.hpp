// What a scheduled step would do on a cluster: every lane in program order, contention included.
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
  double compute_s = 0;  ///< the compute lane is busy; contention shows here
  /// The compute lane idles while communication is outstanding: an all-to-all, else an all-reduce, is in flight, or a
  /// peer has yet to join it.
  double exposed_all_to_all_s = 0, exposed_all_reduce_s = 0, late_peer_s = 0;
  double comm_s = 0;                  ///< some communication is in flight
  double near_s = 0, far_s = 0;       ///< … and moves bytes inside nodes; between them
  std::vector<TaskId> critical_path;  ///< from the end back: who ended last before a task began
  std::vector<double> exposed_by;     ///< by task: what it exposed, of exposed_all_to_all_s

  [[nodiscard]] double exposed_s() const { return exposed_all_to_all_s + exposed_all_reduce_s + late_peer_s; }
};

/// Of a rank with mean load; where costs of the heaviest rank differ, it takes part and may come late.
Timeline simulate(const Program& program, const Cluster& cluster);

struct Memory {
  std::int64_t fixed_bytes = 0;  ///< inputs, parameters and states
  std::int64_t peak_bytes = 0;   ///< activations and buffers, at their most
};

/// A value lives from the start of its producer to the end of its last user, views of it included.
Memory memory_of(const Graph& graph, const Program& program, const Timeline& timeline);

/// No schedule of these tasks is faster: each lane's and each link's work, and the longest chain.
double least_step_s(const Program& program);

/// For chrome://tracing and Perfetto.
std::string chrome_trace(const Graph& graph, const Program& program, const Timeline& timeline);

}  // namespace shunt::graph
