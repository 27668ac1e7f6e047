// Executes a scheduled step on this rank: a compute lane and a comm lane, both in program order.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/driver.hpp"
#include "graph/simulate.hpp"
#include "runtime/transfers.hpp"

namespace shunt::runtime {

struct ExecutorOptions {
  /// Ops of the comm lane in flight at a time, as Cluster::comm_workers in simulations.
  std::int32_t transfers_in_flight = 2;
  TransferOptions transfers = {};
  MemoryOptions memory = {};
};

/// Times of one step on this rank, from its start.
struct StepTimes {
  std::vector<graph::Timeline::Span> ops;  ///< by op; {0, 0} for ops that take no time
  double step_s = 0;
  /// Time in which the compute lane waited for communication or for late peers.
  double exposed_s = 0;
};

/// Ranks are in the same step at the same time: construction and step() are collective. The thread that calls step() is
/// the compute lane, and uses the world for nothing else meanwhile; the comm lane is a thread of the executor, which
/// sleeps while it waits.
class Executor {
 public:
  /// Checks first that all ranks have the same graph: throws Error(mismatch) that names ranks that differ. The world
  /// and the store outlive the executor.
  Executor(World& world, graph::Graph graph, Store& store, const ExecutorOptions& options = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Executes the graph once. If a rank fails, all throw; the executor and the world can't be used afterwards.
  void step();

  /// The memory of a declared value or, after a step, of an output.
  [[nodiscard]] View view(graph::ValueId value) const { return memory_.view(value); }
  [[nodiscard]] View view(const std::string& name) const;

  [[nodiscard]] const graph::Graph& graph() const { return graph_; }
  [[nodiscard]] const StepTimes& times() const { return times_; }
  [[nodiscard]] const StepMemory& memory() const { return memory_; }

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  void run_compute_lane();
  void wait_for_transfer(std::uint32_t index);
  void compute(const LaneTask& task);
  void run_comm_lane();
  void communicate();
  void serve();
  void fail_step(std::exception_ptr error);

  World& world_;
  graph::Graph graph_;
  Places places_;
  Lanes lanes_;
  StepMemory memory_;
  Transfers transfers_;
  Driver driver_;
  std::size_t most_in_flight_;
  StepTimes times_;
  Clock::time_point start_;

  // Between the lanes. Release where a lane publishes what it has done, acquire where the other reads it.
  std::atomic<std::uint32_t> num_computed_{0};
  std::vector<std::uint32_t> wakes_comm_;           // by compute task: whether the comm lane may wait for its end
  std::unique_ptr<std::atomic<bool>[]> has_ended_;  // by transfer
  std::atomic<std::uint32_t> num_ended_{0};         // transfers; the compute lane sleeps on it
  std::atomic<bool> has_failed_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t num_steps_begun_ = 0, num_steps_ended_ = 0;  // by the comm lane
  bool is_over_ = false;
  std::exception_ptr error_;  // the first
  std::thread comm_lane_;
};

}  // namespace shunt::runtime
