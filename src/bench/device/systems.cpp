#include "bench/device/systems.hpp"

#include <algorithm>
#include <numeric>

#include "bench/device/engine.hpp"
#include "bench/ranks.hpp"
#include "engine/cuda/row_kernels.hpp"
#include "kernels/cuda/copy_rows.hpp"
#include "kernels/cuda/quantise_rows.hpp"
#include "kernels/cuda/reduce_rows.hpp"
#include "shunt/routing.hpp"

namespace shunt::bench {
namespace {

std::int64_t most_rows(const ShuffleConfig& config, const Workload& workload) {
  return std::max<std::int64_t>(workload.most_rows_of_a_rank(config.layout == Layout::token_unique), 1);
}

/// Memory for rows, experts' outputs, results and terms.
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
    const std::vector<std::byte*> pointers = gather_values(world, mine);
    return upload(std::span<std::byte* const>(pointers));
  };
  rows_of_ranks_ = gather(rows_.data);
  expert_out_of_ranks_ = gather(expert_out_.data);
  if (scales_.data) scales_of_ranks_ = gather(scales_.data);
  const std::uint32_t zero = 0;
  no_stop_ = upload(std::span(&zero, 1));
}

void DeviceShuntSystem::plan() {
  plan_ = {};  // so that its memory can be reused
  plan_ = engine_.plan(routing_.view(), map_,
                       {.layout = config_.layout, .max_rows = max_rows_, .rows = rows_, .row_scales = scales_});
}

void DeviceShuntSystem::dispatch() { (void)engine_.dispatch(plan_, x_); }
void DeviceShuntSystem::combine() { (void)engine_.combine(plan_, expert_out_, {.out = result_}); }

void DeviceShuntSystem::dispatch_kernel() {
  const auto [shape, arrays] = node_plan(plan_);
  if (config_.dtype != fp8_e4m3)
    return device::launch_copy(shape, arrays, x_, rows_of_ranks_.get(), no_stop_.get(), config_.sms, engine_.stream());
  device::launch(device::QuantiseRows{.x = x_.data,
                                      .scales = nullptr,
                                      .rows = rows_of_ranks_.get(),
                                      .row_scales = scales_of_ranks_.get(),
                                      .terms = arrays.terms,
                                      .num_tokens = config_.tokens,
                                      .topk = config_.topk,
                                      .hidden = config_.hidden,
                                      .x_dtype = x_.dtype,
                                      .stop = no_stop_.get()},
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
                      .stop = no_stop_.get()},
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
  dispatch();  // sets rows_
  combine();
  world.barrier();  // later work must not wait on the device for work that is not launched yet
}

void DevicePaddedSystem::plan() {
  plan_ = engine_.plan(routing_.view(), map_, {.layout = Layout::padded, .max_tokens = config_.tokens});
}

std::vector<std::int64_t> DevicePaddedSystem::row_counts() const {
  const auto counts = download(rows_.source_counts.data(), rows_.source_counts.size(), engine_.stream());
  return {counts.begin(), counts.end()};
}

DeviceUnfusedSystem::DeviceUnfusedSystem(World& world, const ShuffleConfig& config, const Workload& workload,
                                         const Tensor& x, cudaStream_t stream)
    : world_(world), config_(config), rank_(world.rank().index()), stream_(stream), x_(x) {
  find_runs(workload);
  send_ = tensor_on_device(x.dtype, static_cast<std::int64_t>(gather_.size()), x.cols);
  receive_ = tensor_on_device(x.dtype, static_cast<std::int64_t>(scatter_.size()), x.cols);
  rows_ = tensor_on_device(x.dtype, receive_.rows, x.cols);
  expert_out_ = tensor_on_device(x.dtype, receive_.rows, x.cols);
  result_ = tensor_on_device(x.dtype, x.rows, x.cols);
  gather_list_ = upload(std::span<const device::Segment>(gather_));
  scatter_list_ = upload(std::span<const device::Segment>(scatter_));
  unscatter_list_ = upload(std::span<const device::Segment>(unscatter_));
  term_list_ = upload(std::span<const device::Term>(terms_));
  send_base_ = upload(std::span<std::byte* const>(&send_.data, 1));
  receive_base_ = upload(std::span<std::byte* const>(&receive_.data, 1));
  rows_base_ = upload(std::span<std::byte* const>(&rows_.data, 1));
  const std::uint32_t zero = 0;
  no_stop_ = upload(std::span(&zero, 1));
  device::check(cudaEventCreateWithFlags(&copied_, cudaEventDisableTiming), "make an event");
  peers_ = gather_values(world, Buffers{receive_.data, copied_});
}

DeviceUnfusedSystem::~DeviceUnfusedSystem() { (void)cudaEventDestroy(copied_); }

// All positions follow from the routings of all ranks, which every rank can compute.
void DeviceUnfusedSystem::find_runs(const Workload& workload) {
  const ExpertMap map = config_.map();
  const auto num_ranks = static_cast<std::size_t>(config_.ranks);
  const auto num_experts = static_cast<std::size_t>(map.num_physical());
  std::vector<std::int32_t> counts(num_ranks * num_experts);  // [source, physical expert]
  for (std::size_t source = 0; source < num_ranks; ++source)
    for (const PhysicalId expert : workload.routing(source).copies)
      if (expert.valid()) ++counts[source * num_experts + expert.index()];
  const auto count_of = [&](std::size_t source, std::size_t expert) { return counts[source * num_experts + expert]; };
  const auto rows_between = [&](std::size_t source, std::size_t destination) {
    std::int64_t rows = 0;
    const auto first = map.first_physical(RankId(destination)).index();
    for (std::size_t local = 0; local < static_cast<std::size_t>(map.num_local(RankId(destination))); ++local)
      rows += count_of(source, first + local);
    return rows;
  };
  std::int64_t here = 0;
  for (std::size_t peer = 0; peer < num_ranks; ++peer) {
    std::int64_t there = 0;
    for (std::size_t source = 0; source < rank_; ++source) there += rows_between(source, peer);
    runs_.push_back({here, there, rows_between(rank_, peer)});
    here += runs_.back().rows;
  }

  // This rank's rows by expert; this is also by rank.
  std::vector<std::int32_t> next(num_experts);
  for (std::size_t expert = 1; expert < num_experts; ++expert)
    next[expert] = next[expert - 1] + count_of(rank_, expert - 1);
  const RankRouting& routing = workload.routing(rank_);
  gather_.resize(static_cast<std::size_t>(here));
  const auto topk = static_cast<std::size_t>(config_.topk);
  for (std::size_t token = 0; token < static_cast<std::size_t>(config_.tokens); ++token) {
    std::size_t num_terms = 0;
    for (std::size_t choice = 0; choice < topk; ++choice) {
      const PhysicalId expert = routing.copies[token * topk + choice];
      if (!expert.valid()) continue;
      const std::int32_t position = next[expert.index()]++;
      gather_[static_cast<std::size_t>(position)] = {static_cast<std::int32_t>(token), 0, position, 1.0f};
      terms_.push_back({0, position, routing.weights[token * topk + choice], static_cast<std::int16_t>(choice),
                        static_cast<std::int16_t>(device::Closes::nothing)});
      ++num_terms;
    }
    if (num_terms > 0) terms_.back().closes = static_cast<std::int16_t>(device::Closes::node);
    for (; num_terms < topk; ++num_terms) terms_.push_back({-1, -1, 0.0f, -1, 0});
  }

  // Rows arrive by source, then expert, and are permuted to expert, then source.
  std::vector<std::int32_t> arrival(num_ranks);
  for (std::size_t source = 1; source < num_ranks; ++source)
    arrival[source] = arrival[source - 1] + static_cast<std::int32_t>(rows_between(source - 1, rank_));
  const auto first = map.first_physical(RankId(rank_)).index();
  std::int32_t slot = 0;
  for (std::size_t local = 0; local < static_cast<std::size_t>(map.num_local(RankId(rank_))); ++local) {
    const std::int32_t begin = slot;
    for (std::size_t source = 0; source < num_ranks; ++source)
      for (std::int32_t i = 0; i < count_of(source, first + local); ++i, ++slot) {
        scatter_.push_back({arrival[source]++, 0, slot, 1.0f});
        unscatter_.push_back({slot, 0, scatter_.back().token, 1.0f});
      }
    row_counts_.push_back(slot - begin);
  }
}

void DeviceUnfusedSystem::permute(const ConstTensor& from, const Tensor& to,
                                  const std::shared_ptr<device::Segment>& order, std::int64_t num_rows,
                                  const std::shared_ptr<std::byte*>& base) const {
  device::launch(device::CopyRows{.x = from.data,
                                  .out = base.get(),
                                  .segments = order.get(),
                                  .num_segments = num_rows,
                                  .row_bytes = to.row_bytes(),
                                  .stop = no_stop_.get()},
                 stream_);
}

void DeviceUnfusedSystem::wait_for_copies() {
  device::check(cudaEventRecord(copied_, stream_), "record an event");
  world_.barrier();  // all have recorded their event
  for (const Buffers& peer : peers_) device::check(cudaStreamWaitEvent(stream_, peer.copied, 0), "wait for copies");
  world_.barrier();  // no rank records its event again before all wait for it
}

void DeviceUnfusedSystem::dispatch() {
  permute(x_, send_, gather_list_, send_.rows, send_base_);
  const std::size_t row_bytes = x_.row_bytes();
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    const Run& run = runs_[peer];
    if (run.rows == 0) continue;
    device::check(
        cudaMemcpyAsync(peers_[peer].receive + static_cast<std::size_t>(run.there) * row_bytes, send_.row(run.here),
                        static_cast<std::size_t>(run.rows) * row_bytes, cudaMemcpyDeviceToDevice, stream_),
        "copy to a peer");
  }
  wait_for_copies();
  permute(receive_, rows_, scatter_list_, rows_.rows, rows_base_);
}

void DeviceUnfusedSystem::combine() {
  permute(expert_out_, receive_, unscatter_list_, receive_.rows, receive_base_);
  wait_for_copies();  // for the peers' permutations, whose output is copied below
  const std::size_t row_bytes = x_.row_bytes();
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    const Run& run = runs_[peer];
    if (run.rows == 0) continue;
    device::check(
        cudaMemcpyAsync(send_.row(run.here), peers_[peer].receive + static_cast<std::size_t>(run.there) * row_bytes,
                        static_cast<std::size_t>(run.rows) * row_bytes, cudaMemcpyDeviceToDevice, stream_),
        "copy from a peer");
  }
  device::launch(device::ReduceRows{.rows = send_base_.get(),
                                    .result = result_.data,
                                    .terms = term_list_.get(),
                                    .num_tokens = config_.tokens,
                                    .topk = config_.topk,
                                    .hidden = config_.hidden,
                                    .row_dtype = x_.dtype,
                                    .wire_dtype = x_.dtype,
                                    .result_dtype = x_.dtype,
                                    .weighted = true,
                                    .stop = no_stop_.get()},
                 stream_);
}

}  // namespace shunt::bench
