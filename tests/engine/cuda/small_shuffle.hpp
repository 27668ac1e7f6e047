// The smallest use of a device engine: a few tokens go to one expert each and come back.
#pragma once

#include <chrono>
#include <vector>

#include "shunt/device_engine.hpp"
#include "support/cuda/device.hpp"

namespace shunt::test {

/// Token t of every rank goes to expert t modulo the number of experts, two per rank, unless it is told otherwise. All
/// elements of a token are 1 + t.
class SmallShuffle {
 public:
  static constexpr std::int64_t kTokens = 8;
  static constexpr std::int64_t kHidden = 64;

  /// Collective.
  SmallShuffle(World& world, const DeviceHeap& heap, std::chrono::milliseconds deadline);

  /// What the heap hands out next holds this byte.
  void poison_heap(int pattern);
  void route(std::int64_t token, std::int32_t expert);
  void route_all_to(std::int32_t expert);

  void plan(const DevicePlanOptions& options = {});
  [[nodiscard]] const DevicePlan& current_plan() const { return plan_; }
  DeviceTicket<DeviceRows> dispatch();
  DeviceTicket<DeviceRows> dispatch_wrong_rows();
  DeviceTicket<Tensor> combine();
  /// Dispatches, combines what came, and gives the first element of each token.
  std::vector<float> sums();
  /// Plans; throws unless every token comes back as it was.
  void round_trip();

  [[nodiscard]] DeviceEngine& engine() { return engine_; }

 private:
  ExpertMap map_;
  const DeviceHeap& heap_;
  DeviceEngine engine_;
  Tensor experts_;
  Tensor x_;
  Tensor rows_;
  bool plan_has_rows_ = false;
  DevicePlan plan_;
};

}  // namespace shunt::test
