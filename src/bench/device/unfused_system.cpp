#include "bench/device/unfused_system.hpp"

#include <algorithm>
#include <numeric>

#include "bench/device/memory.hpp"
#include "bench/ranks.hpp"
#include "kernels/cuda/copy_rows.hpp"
#include "kernels/cuda/reduce_rows.hpp"

namespace shunt::bench {

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
  never_ = upload(std::span(&zero, 1));
  device::check(cudaEventCreateWithFlags(&copied_, cudaEventDisableTiming), "make an event");
  peers_ = values_of_ranks(world, Buffers{receive_.data, copied_});
}

DeviceUnfusedSystem::~DeviceUnfusedSystem() { (void)cudaEventDestroy(copied_); }

// Everything follows from the routings of all ranks, which any rank can compute.
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

  // This rank's rows by expert, which is also by rank.
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

  // What arrives by source, then expert, belongs by expert, then source.
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
                                  .stop = never_.get()},
                 stream_);
}

void DeviceUnfusedSystem::wait_for_copies() {
  device::check(cudaEventRecord(copied_, stream_), "record an event");
  world_.barrier();  // all have recorded theirs
  for (const Buffers& peer : peers_) device::check(cudaStreamWaitEvent(stream_, peer.copied, 0), "wait for copies");
  world_.barrier();  // nobody records anew before
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
  wait_for_copies();  // of the permutations: what a peer fetches is there
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
                                    .stop = never_.get()},
                 stream_);
}

}  // namespace shunt::bench
