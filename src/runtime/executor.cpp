#include "runtime/executor.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/fail.hpp"
#include "core/start_thread.hpp"
#include "graph/schedule.hpp"
#include "layer/one_thread.hpp"
#include "runtime/op_call.hpp"

namespace shunt::runtime {
namespace {

using graph::OpId;
using graph::ValueId;

const graph::Graph& checked(World& world, const graph::Graph& graph) {
  const std::uint64_t hash = graph.hash();
  std::vector<std::uint64_t> hashes;
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(&hash, 1)))) {
    if (bytes.size() != sizeof(hash))
      fail(ErrorCode::mismatch, "rank {} published {} bytes, not a hash", hashes.size(), bytes.size());
    std::memcpy(&hashes.emplace_back(), bytes.data(), sizeof(hash));
  }
  graph::check_same_schedule(hashes);
  if (graph.ranks != world.size())
    fail(ErrorCode::invalid_argument, "{} is a graph of {} ranks, not of {}", graph.name, graph.ranks, world.size());
  return graph;
}

}  // namespace

Executor::Executor(World& world, graph::Graph graph, Store& store, const ExecutorOptions& options)
    : world_(world),
      graph_(std::move(graph)),
      places_(checked(world, graph_)),
      lanes_(graph_),
      memory_(world, graph_, places_, lanes_, store, options.memory),
      transfers_(world, graph_, memory_, options.transfers),
      driver_(world),
      most_in_flight_(static_cast<std::size_t>(std::max(options.transfers_in_flight, 1))),
      wakes_comm_(lanes_.compute().size()),
      has_ended_(std::make_unique<std::atomic<bool>[]>(lanes_.comm().size())) {
  for (const LaneTask& task : lanes_.comm())
    if (task.computed > 0) wakes_comm_[task.computed - 1] = 1;
  times_.ops.resize(graph_.ops().size());
  comm_lane_ = start_thread(fmt::format("the comm lane of rank {}", world.rank()), [this] { serve(); });
}

Executor::~Executor() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  comm_lane_.join();
}

View Executor::view(const std::string& name) const {
  const auto value = graph_.find(name);
  if (!value) fail(ErrorCode::invalid_argument, "{} has no value %{}", graph_.name, name);
  return view(*value);
}

void Executor::step() {
  if (has_failed_) std::rethrow_exception(error_);
  memory_.begin_step();
  num_computed_ = 0;
  num_ended_ = 0;
  for (std::size_t i = 0; i < lanes_.comm().size(); ++i) has_ended_[i] = false;
  times_.exposed_s = 0;
  start_ = Clock::now();
  {
    const std::lock_guard lock(mutex_);
    ++num_steps_begun_;
  }
  changed_.notify_all();
  try {
    run_compute_lane();
  } catch (...) {
    fail_step(std::current_exception());
  }
  const double computed_s = now();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return num_steps_ended_ == num_steps_begun_; });
  if (error_) std::rethrow_exception(error_);
  times_.step_s = now();
  times_.exposed_s += times_.step_s - computed_s;
  lock.unlock();
  try {
    memory_.end_step();
  } catch (...) {
    fail_step(std::current_exception());
    throw;
  }
}

void Executor::fail_step(std::exception_ptr error) {
  // Peers would wait for this rank until the deadline. The first report counts: none after a peer's.
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& cause) {
    driver_.report(fmt::format("rank {} failed in a step of {}: {}", world_.rank(), graph_.name, cause.what()));
  } catch (...) {
    driver_.report(fmt::format("rank {} failed in a step of {}", world_.rank(), graph_.name));
  }
  {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  has_failed_ = true;
  ++num_ended_;  // wakes the compute lane
  num_ended_.notify_all();
  driver_.wake();
}

void Executor::run_compute_lane() {
  const OneThread one_thread;
  for (const LaneTask& task : lanes_.compute()) {
    for (const std::uint32_t transfer : task.transfers) wait_for_transfer(transfer);
    if (has_failed_) return;
    compute(task);
    num_computed_.store(task.index + 1, std::memory_order_release);
    if (wakes_comm_[task.index]) driver_.wake();
  }
}

void Executor::wait_for_transfer(std::uint32_t index) {
  if (has_ended_[index].load(std::memory_order_acquire)) return;
  const double begin_s = now();
  for (;;) {
    const std::uint32_t seen = num_ended_;
    if (has_ended_[index].load(std::memory_order_acquire) || has_failed_) break;
    num_ended_.wait(seen);
  }
  times_.exposed_s += now() - begin_s;
}

void Executor::compute(const LaneTask& task) {
  const graph::Op& op = graph_.op(task.op);
  OpCall call{graph_, op, {}, {}, transfers_.expert_offsets(op)};
  for (const ValueId operand : op.operands) call.operands.push_back(view(operand));
  for (const ValueId result : op.results) call.results.push_back(view(result));
  auto& span = times_.ops[task.op.index()];
  span.begin_s = now();
  runtime::compute(call);
  span.end_s = now();
  memory_.end_task(task);
}

void Executor::serve() {
  for (std::uint64_t step = 1;; ++step) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return is_over_ || num_steps_begun_ == step; });
      if (is_over_) return;
    }
    try {
      communicate();
    } catch (...) {
      fail_step(std::current_exception());
    }
    {
      const std::lock_guard lock(mutex_);
      num_steps_ended_ = step;
    }
    changed_.notify_all();
  }
}

void Executor::communicate() {
  struct InFlight {
    const LaneTask* task;
    std::unique_ptr<Transfer> transfer;
  };
  const auto driving = driver_.drive();
  std::vector<InFlight> in_flight;
  std::size_t next = 0;
  const auto is_ready = [&](const LaneTask& task) {
    return num_computed_.load(std::memory_order_acquire) >= task.computed &&
           std::ranges::all_of(task.transfers, [&](std::uint32_t index) { return has_ended_[index].load(); });
  };
  const auto may_start = [&] {
    return next < lanes_.comm().size() && in_flight.size() < most_in_flight_ && is_ready(lanes_.comm()[next]);
  };
  const auto has_arrived = [](const InFlight& each) { return each.transfer->done(); };
  while (next < lanes_.comm().size() || !in_flight.empty()) {
    driver_.drive_until([&] { return has_failed_ || may_start() || std::ranges::any_of(in_flight, has_arrived); });
    if (has_failed_) return;  // drops the tickets, which the world's fault has ended
    for (std::size_t i = 0; i < in_flight.size();) {
      if (!has_arrived(in_flight[i])) {
        ++i;
        continue;
      }
      const InFlight arrived = std::exchange(in_flight[i], {});
      in_flight.erase(in_flight.begin() + static_cast<std::ptrdiff_t>(i));
      arrived.transfer->finish();
      times_.ops[arrived.task->op.index()].end_s = now();
      memory_.end_task(*arrived.task);
      has_ended_[arrived.task->index].store(true, std::memory_order_release);
      ++num_ended_;
      num_ended_.notify_all();
    }
    while (may_start()) {
      const LaneTask& task = lanes_.comm()[next++];
      times_.ops[task.op.index()].begin_s = now();
      in_flight.push_back({&task, transfers_.start(graph_.op(task.op))});
    }
  }
}

}  // namespace shunt::runtime
