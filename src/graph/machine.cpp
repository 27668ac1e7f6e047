#include "graph/machine.hpp"

#include <algorithm>
#include <limits>

namespace shunt::graph {
namespace {

constexpr double kNothing = 1e-15;  // seconds; what rounding may leave over

}  // namespace

Machine::Machine(const Cluster& cluster, std::size_t ranks)
    : cluster_(cluster), workers_(static_cast<std::size_t>(cluster.comm_workers)), compute_(ranks) {}

bool Machine::is_idle() const {
  return transfers_.empty() &&
         std::none_of(compute_.begin(), compute_.end(), [](const Compute& each) { return each.is_active; });
}

void Machine::start_compute(std::size_t rank, TaskId task, double seconds) { compute_[rank] = {true, task, seconds}; }

void Machine::start_comm(TaskId task, const CommCost& cost) {
  transfers_.push_back({task, cost.latency_s, cost.near_s, cost.far_s});
}

Machine::Rates Machine::rates() const {
  const bool computes =
      std::any_of(compute_.begin(), compute_.end(), [](const Compute& each) { return each.is_active; });
  int near = 0, far = 0;
  for (const Transfer& each : transfers_) {
    near += each.latency_s <= 0 && each.near_s > 0;
    far += each.latency_s <= 0 && each.far_s > 0;
  }
  const double link = computes ? 1 / cluster_.comm_slowdown : 1;
  return {transfers_.empty() ? 1 : 1 / cluster_.compute_slowdown, 1, link / std::max(1, near), link / std::max(1, far)};
}

double Machine::advance(std::vector<Done>& done) {
  const Rates rate = rates();
  double step = std::numeric_limits<double>::infinity();
  for (const Compute& each : compute_)
    if (each.is_active) step = std::min(step, each.left_s / rate.compute);
  for (const Transfer& each : transfers_) {
    if (each.latency_s > 0) {
      step = std::min(step, each.latency_s / rate.latency);
      continue;
    }
    if (each.near_s > 0) step = std::min(step, each.near_s / rate.near);
    if (each.far_s > 0) step = std::min(step, each.far_s / rate.far);
    if (each.near_s <= 0 && each.far_s <= 0) step = 0;
  }
  now_ += step;
  const auto use = [](double& left, double amount) {
    left -= amount;
    if (left < kNothing) left = 0;
  };
  for (std::size_t rank = 0; rank < compute_.size(); ++rank) {
    Compute& each = compute_[rank];
    if (!each.is_active) continue;
    use(each.left_s, step * rate.compute);
    if (each.left_s > 0) continue;
    each.is_active = false;
    done.push_back({each.task, Lane::compute, rank});
  }
  for (Transfer& each : transfers_) {
    if (each.latency_s > 0) {
      use(each.latency_s, step * rate.latency);
    } else {
      use(each.near_s, step * rate.near);
      use(each.far_s, step * rate.far);
    }
    if (each.latency_s <= 0 && each.near_s <= 0 && each.far_s <= 0) done.push_back({each.task, Lane::comm, 0});
  }
  std::erase_if(transfers_,
                [](const Transfer& each) { return each.latency_s <= 0 && each.near_s <= 0 && each.far_s <= 0; });
  return step;
}

}  // namespace shunt::graph
