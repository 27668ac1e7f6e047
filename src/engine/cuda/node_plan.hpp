// A plan that was made on a device and lives there.
#pragma once

#include <cstdint>
#include <memory>

#include "core/cuda/map_tables.hpp"
#include "plan/cuda/plan_arrays.hpp"
#include "plan/plan_data.hpp"

namespace shunt {

class NodeEngine;
struct PaddedBuffers;

struct NodePlan final : PlanData {
  [[nodiscard]] PlanArrays host_arrays() const override;
  [[nodiscard]] PlanArrays device_arrays() const override;
  [[nodiscard]] PlanContents read() const override;
  void require_counts(std::string_view what) const override;

  std::shared_ptr<const NodeEngine> owner;
  std::shared_ptr<const device::MapTables> map;  ///< kept for graphs that plan anew

  // The routing, on the device.
  const std::int32_t* experts = nullptr;
  const float* weights = nullptr;
  const std::int64_t* wide_experts = nullptr;  ///< null, or what `experts` is made of
  std::shared_ptr<std::byte> routing_block;    ///< of the two where they are not the caller's

  std::shared_ptr<std::byte> block;    ///< of the arrays
  std::shared_ptr<std::byte> clamped;  ///< `token_unique` with a capacity: the routing without what it drops
  std::shared_ptr<std::byte> copies;   ///< of a map with replicas: the copy that each entry goes to
  device::PlanShape shape{};
  device::PlanArrays arrays{};

  std::shared_ptr<const PaddedBuffers> padded;  ///< `padded`, which has none of the above but the routing
};

}  // namespace shunt
