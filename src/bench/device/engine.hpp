// The engine that benchmarks on a device measure.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "bench/device/memory.hpp"
#include "bench/shuffle/config.hpp"
#include "shunt/engine.hpp"
#include "shunt/world.hpp"

namespace shunt::bench {

/// What any rank holds at most: its rows twice (scales included where they are fp8, and then narrower than experts'
/// outputs), its tokens and its result, a plan or two.
inline std::size_t heap_bytes(const ShuffleConfig& config, std::int64_t rows) {
  const std::size_t row_bytes = static_cast<std::size_t>(config.hidden) * size_of(config.expert_dtype());
  const auto entries = static_cast<std::size_t>(config.tokens) * static_cast<std::size_t>(config.topk);
  const auto maps = entries * static_cast<std::size_t>(config.ranks) * 16;
  return 2 * static_cast<std::size_t>(rows + config.tokens) * row_bytes + 3 * (entries * 48 + maps) +
         (std::size_t{64} << 20);
}

/// Collective. On the calling thread's current device, which ranks share.
inline Engine make_device_engine(World& world, const ShuffleConfig& config, std::size_t bytes_of_heap, Stream stream) {
  constexpr std::chrono::seconds kDeadline(30);  // far more than anything here takes
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

}  // namespace shunt::bench
