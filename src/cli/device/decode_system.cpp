#include "cli/device/decode_system.hpp"

#include "cli/device/memory.hpp"
#include "shunt/routing.hpp"

namespace shunt::cli {
namespace {

/// Rows and experts' outputs, results and terms.
std::size_t heap_bytes(const ShuffleConfig& config) {
  const auto tokens = static_cast<std::size_t>(config.tokens);
  const auto ranks = static_cast<std::size_t>(config.ranks);
  const auto local = static_cast<std::size_t>(config.most_local_experts());
  const auto hidden = static_cast<std::size_t>(config.hidden);
  const std::size_t row_bytes = hidden * size_of(config.expert_dtype()) + scales_per_row(hidden) * sizeof(float);
  return (2 * local * ranks * tokens + 2 * tokens) * row_bytes + tokens * Routing::kMaxTopK * 16 +
         (std::size_t{64} << 20);
}

}  // namespace

DeviceDecodeSystem::DeviceDecodeSystem(World& world, const ShuffleConfig& config, const Workload& workload,
                                       const Tensor& x, Stream stream)
    : config_(config),
      experts_(upload(std::span(workload.routing(world.rank().index()).experts))),
      weights_(upload(std::span(workload.routing(world.rank().index()).weights))),
      x_(x),
      heap_(world, {.bytes = heap_bytes(config)}),
      decoder_(world, heap_, config.map(),
               {.hidden = config.hidden,
                .dtype = config.dtype,
                .max_tokens = config.tokens,
                .max_experts = config.map().num_physical(),
                .stream = stream,
                .deadline = std::chrono::seconds(30)}),
      result_(heap_.allocate(config.expert_dtype(), config.tokens, config.hidden)) {}

void DeviceDecodeSystem::dispatch() {
  (void)decoder_.dispatch(
      {.experts = experts_.get(), .weights = weights_.get(), .num_tokens = config_.tokens, .topk = config_.topk}, x_);
}

}  // namespace shunt::cli
