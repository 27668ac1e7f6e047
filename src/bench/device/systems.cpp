#include "bench/device/systems.hpp"

#include <algorithm>

#include "bench/device/engine.hpp"
#include "bench/device/node_plan.hpp"
#include "bench/ranks.hpp"
#include "engine/cuda/row_kernels.hpp"
#include "kernels/cuda/quantise_rows.hpp"
#include "shunt/routing.hpp"

namespace shunt::bench {
namespace {

std::int64_t most_rows(const ShuffleConfig& config, const Workload& workload) {
  return std::max<std::int64_t>(workload.most_rows_of_a_rank(config.layout == Layout::token_unique), 1);
}

/// Rows and experts' outputs, results and terms.
std::size_t padded_heap_bytes(const ShuffleConfig& config) {
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
      routing_(workload.routing(world.rank().index()), config.topk),
      x_(x),
      max_rows_(most_rows(config, workload)),
      engine_(make_device_engine(world, config, heap_bytes(config, max_rows_), stream)) {
  rows_ = engine_.allocate(config.dtype, max_rows_, config.hidden);
  if (config.dtype == fp8_e4m3)
    scales_ = engine_.allocate(f32, max_rows_,
                               static_cast<std::int64_t>(scales_per_row(static_cast<std::size_t>(config.hidden))));
  plan();
  expert_out_ = engine_.expert_out(plan_);
  result_ = engine_.allocate(config.expert_dtype(), config.tokens, config.hidden);
  const auto gather = [&](std::byte* mine) {
    const std::vector<std::byte*> pointers = values_of_ranks(world, mine);
    return upload(std::span<std::byte* const>(pointers));
  };
  rows_of_ranks_ = gather(rows_.data);
  expert_out_of_ranks_ = gather(expert_out_.data);
  if (scales_.data) scales_of_ranks_ = gather(scales_.data);
  const std::uint32_t zero = 0;
  never_ = upload(std::span(&zero, 1));
}

void DeviceShuntSystem::plan() {
  plan_ = {};  // its memory is used again
  plan_ = engine_.plan(routing_.view(), map_,
                       {.layout = config_.layout, .max_rows = max_rows_, .rows = rows_, .row_scales = scales_});
}

void DeviceShuntSystem::dispatch() { (void)engine_.dispatch(plan_, x_); }
void DeviceShuntSystem::combine() { (void)engine_.combine(plan_, expert_out_, {.out = result_}); }

void DeviceShuntSystem::dispatch_kernel() {
  const auto [shape, arrays] = node_plan(plan_);
  if (config_.dtype != fp8_e4m3)
    return device::launch_copy(shape, arrays, x_, rows_of_ranks_.get(), never_.get(), config_.sms, engine_.stream());
  device::launch(device::QuantiseRows{.x = x_.data,
                                      .scales = nullptr,
                                      .rows = rows_of_ranks_.get(),
                                      .row_scales = scales_of_ranks_.get(),
                                      .terms = arrays.terms,
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
                      .terms = node_plan(plan_).arrays.terms,
                      .num_tokens = config_.tokens,
                      .topk = config_.topk,
                      .hidden = config_.hidden,
                      .row_dtype = config_.expert_dtype(),
                      .wire_dtype = config_.expert_dtype(),
                      .result_dtype = config_.expert_dtype(),
                      .weighted = true,
                      .stop = never_.get()},
                     config_.sms, engine_.stream());
}

std::vector<std::int64_t> DeviceShuntSystem::row_counts() const {
  const std::vector<std::int32_t> counts = plan_.read().expert_counts;
  return {counts.begin(), counts.end()};
}

DevicePaddedSystem::DevicePaddedSystem(World& world, const ShuffleConfig& config, const Workload& workload,
                                       const Tensor& x, Stream stream)
    : config_(config),
      map_(config.map()),
      routing_(workload.routing(world.rank().index()), config.topk),
      x_(x),
      engine_(make_device_engine(world, config, padded_heap_bytes(config), stream)),
      result_(engine_.allocate(config.expert_dtype(), config.tokens, config.hidden)) {
  plan();
  expert_out_ = engine_.expert_out(plan_);
  dispatch();  // says where rows are
  combine();
  world.barrier();  // nobody waits for what has not been put on a stream
}

void DevicePaddedSystem::plan() {
  plan_ = engine_.plan(routing_.view(), map_, {.layout = Layout::padded, .max_tokens = config_.tokens});
}

std::vector<std::int64_t> DevicePaddedSystem::row_counts() const {
  const auto counts = download(rows_.source_counts.data(), rows_.source_counts.size(), engine_.stream());
  return {counts.begin(), counts.end()};
}

}  // namespace shunt::bench
