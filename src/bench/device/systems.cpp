#include "bench/device/systems.hpp"

#include <algorithm>

#include "bench/device/memory.hpp"
#include "bench/ranks.hpp"
#include "engine/cuda/engine_impl.hpp"
#include "engine/cuda/row_kernels.hpp"
#include "kernels/cuda/quantise_rows.hpp"
#include "shunt/routing.hpp"

namespace shunt::bench {
namespace {

constexpr std::chrono::seconds kDeadline(30);  // far more than anything here takes

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

DeviceShuntSystem::DeviceShuntSystem(World& world, const ShuffleConfig& config, const Workload& workload,
                                     const Tensor& x, Stream stream)
    : config_(config),
      map_(config.map()),
      experts_(upload(std::span(workload.routing(world.rank().index()).experts))),
      weights_(upload(std::span(workload.routing(world.rank().index()).weights))),
      x_(x),
      heap_(world, {.bytes = heap_bytes(config, workload.most_rows_of_a_rank(config.layout == Layout::token_unique))}),
      engine_(world, heap_,
              {.hidden = config.hidden,
               .dtype = config.dtype,
               .max_tokens = config.tokens,
               .max_experts = map_.num_physical(),
               .stream = stream,
               .sms = config.sms,
               .deadline = kDeadline}),
      max_rows_(std::max<std::int64_t>(workload.most_rows_of_a_rank(config.layout == Layout::token_unique), 1)) {
  rows_ = heap_.allocate(config.dtype, max_rows_, config.hidden);
  if (config.dtype == fp8_e4m3)
    scales_ = heap_.allocate(f32, max_rows_,
                             static_cast<std::int64_t>(scales_per_row(static_cast<std::size_t>(config.hidden))));
  plan();
  expert_out_ = engine_.expert_out(plan_);
  result_ = heap_.allocate(config.expert_dtype(), config.tokens, config.hidden);
  const auto gather = [&](std::byte* mine) {
    const std::vector<std::byte*> pointers = values_of_ranks(world, mine);
    return upload(std::span<std::byte* const>(pointers));
  };
  rows_of_ranks_ = gather(rows_.data);
  expert_out_of_ranks_ = gather(expert_out_.data);
  if (is_given(scales_)) scales_of_ranks_ = gather(scales_.data);
  const std::uint32_t zero = 0;
  never_ = upload(std::span(&zero, 1));
}

void DeviceShuntSystem::plan() {
  plan_ = {};  // its memory is used again
  plan_ = engine_.plan(
      {.experts = experts_.get(), .weights = weights_.get(), .num_tokens = config_.tokens, .topk = config_.topk}, map_,
      {.layout = config_.layout, .max_rows = max_rows_, .rows = rows_, .row_scales = scales_});
}

void DeviceShuntSystem::dispatch() { (void)engine_.dispatch(plan_, x_); }
void DeviceShuntSystem::combine() { (void)engine_.combine(plan_, expert_out_, {.out = result_}); }
void DeviceShuntSystem::dispatch_kernel() {
  const DevicePlanData& plan = *plan_.data();
  if (config_.dtype != fp8_e4m3)
    return device::launch_copy(plan, x_, rows_of_ranks_.get(), never_.get(), {config_.sms, engine_.stream()});
  device::launch(device::QuantiseRows{.x = x_.data,
                                      .scales = nullptr,
                                      .rows = rows_of_ranks_.get(),
                                      .row_scales = scales_of_ranks_.get(),
                                      .terms = plan.arrays.terms,
                                      .num_tokens = config_.tokens,
                                      .topk = config_.topk,
                                      .hidden = config_.hidden,
                                      .x_dtype = x_.dtype,
                                      .stop = never_.get()},
                 engine_.stream());
}

void DeviceShuntSystem::combine_kernel() {
  device::launch_sum({.rows = expert_out_of_ranks_.get(),
                      .result = result_.data,
                      .terms = plan_.data()->arrays.terms,
                      .num_tokens = config_.tokens,
                      .topk = config_.topk,
                      .hidden = config_.hidden,
                      .row_dtype = config_.expert_dtype(),
                      .wire_dtype = config_.expert_dtype(),
                      .result_dtype = config_.expert_dtype(),
                      .weighted = true,
                      .stop = never_.get()},
                     {config_.sms, engine_.stream()});
}

std::vector<std::int64_t> DeviceShuntSystem::row_counts() const {
  const auto counts =
      download(plan_.expert_counts(), static_cast<std::size_t>(plan_.num_local_experts()), engine_.stream());
  return {counts.begin(), counts.end()};
}

void DeviceShuntSystem::check() { (void)plan_.sizes(); }

DeviceDecodeSystem::DeviceDecodeSystem(World& world, const ShuffleConfig& config, const Workload& workload,
                                       const Tensor& x, Stream stream)
    : config_(config),
      num_runs_(static_cast<std::size_t>(config.map().num_local(world.rank()) * config.ranks)),
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

std::vector<std::int64_t> DeviceDecodeSystem::row_counts() const {
  const auto counts = download(decoder_.source_counts(), num_runs_, decoder_.stream());
  return {counts.begin(), counts.end()};
}

void DeviceDecodeSystem::dispatch() {
  (void)decoder_.dispatch(
      {.experts = experts_.get(), .weights = weights_.get(), .num_tokens = config_.tokens, .topk = config_.topk}, x_);
}

}  // namespace shunt::bench
