// The engine that device benchmarks measure, and internals of its plans.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "bench/device/memory.hpp"
#include "bench/shuffle/config.hpp"
#include "engine/cuda/node_plan.hpp"
#include "shunt/engine.hpp"
#include "shunt/plan.hpp"
#include "shunt/world.hpp"

namespace shunt::bench {

/// Upper bound of a rank's memory: its rows twice (fp8 rows with scales are smaller than experts' outputs), its tokens,
/// its result, and two plans.
inline std::size_t heap_bytes(const ShuffleConfig& config, std::int64_t rows) {
  const std::size_t row_bytes = static_cast<std::size_t>(config.hidden) * size_of(config.expert_dtype());
  const auto entries = static_cast<std::size_t>(config.tokens) * static_cast<std::size_t>(config.topk);
  const auto maps = entries * static_cast<std::size_t>(config.ranks) * 16;
  return 2 * static_cast<std::size_t>(rows + config.tokens) * row_bytes + 3 * (entries * 48 + maps) +
         (std::size_t{64} << 20);
}

/// Collective. Uses the calling thread's current device, which ranks share.
inline Engine make_device_engine(World& world, const ShuffleConfig& config, std::size_t bytes_of_heap, Stream stream) {
  constexpr std::chrono::seconds kDeadline(30);  // far longer than any operation of a benchmark
  return {world,
          {.hidden = config.hidden,
           .dtype = config.dtype,
           .deadline = kDeadline,
           .device = DeviceOptions{.index = device_memory().device,
                                   .heap_bytes = bytes_of_heap,
                                   .max_tokens = config.tokens,
                                   .max_experts = config.map().num_physical(),
                                   .stream = stream,
                                   .sms = config.layout == Layout::padded ? 0 : config.sms}}};
}

/// Valid as long as the plan.
struct NodePlanParts {
  const device::PlanShape& shape;
  const device::PlanArrays& arrays;
};

/// plan: made by an engine on devices of one node. Without vptr checks, because the type info is only in
/// libshunt_cuda.so.
__attribute__((no_sanitize("vptr"))) inline NodePlanParts node_plan(const Plan& plan) {
  const auto& made = static_cast<const NodePlan&>(*plan.data());
  return {made.shape, made.arrays};
}

}  // namespace shunt::bench
