// The machine model of simulation and scheduling: what is running, and at which rate.
#pragma once

#include <vector>

#include "core/cluster.hpp"
#include "graph/program.hpp"

namespace shunt::graph {

/// One compute lane per simulated rank, and communication of all ranks together. Transfers in flight share each link
/// evenly; compute and communication slow each other down while both are active.
class Machine {
 public:
  Machine(const Cluster& cluster, std::size_t ranks);

  struct Done {
    TaskId task;
    Lane lane;
    std::size_t rank;  ///< for compute
  };

  [[nodiscard]] double now() const { return now_; }
  [[nodiscard]] bool is_computing(std::size_t rank) const { return compute_[rank].is_active; }
  [[nodiscard]] bool has_free_worker() const { return transfers_.size() < workers_; }
  [[nodiscard]] bool is_idle() const;
  struct Transfer {
    TaskId task;
    double latency_s, near_s, far_s;  ///< remaining
  };
  [[nodiscard]] const std::vector<Transfer>& transfers() const { return transfers_; }

  void start_compute(std::size_t rank, TaskId task, double seconds);
  void start_comm(TaskId task, const CommCost& cost);

  /// Advances to the next completion and appends what completed; something must be active. Returns the elapsed time.
  double advance(std::vector<Done>& done);

 private:
  struct Compute {
    bool is_active = false;
    TaskId task = 0;
    double left_s = 0;
  };
  struct Rates {
    double compute, latency, near, far;  ///< seconds of work done per second
  };
  [[nodiscard]] Rates rates() const;

  const Cluster& cluster_;
  std::size_t workers_;
  double now_ = 0;
  std::vector<Compute> compute_;
  std::vector<Transfer> transfers_;
};

}  // namespace shunt::graph
