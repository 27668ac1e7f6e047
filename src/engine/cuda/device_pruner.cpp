#include "shunt/device_pruner.hpp"

#include <cuda_runtime_api.h>

#include <span>
#include <vector>

#include "core/copy_tables.hpp"
#include "core/cuda/memory.hpp"
#include "core/cuda/on_device.hpp"
#include "core/cuda/stream.hpp"
#include "core/fail.hpp"
#include "plan/cuda/prune.hpp"
#include "plan/prune.hpp"

namespace shunt {
namespace {

std::int32_t current_device() {
  int current = 0;
  device::check(cudaGetDevice(&current), "look up the current device");
  return current;
}

template <class T>
std::shared_ptr<T> upload(std::span<const T> values) {
  const auto memory = device::allocate<T>(values.size());
  // On a stream of its own, as the default one would wait for all others.
  const auto stream = device::make_stream();
  device::check(cudaMemcpyAsync(memory.get(), values.data(), values.size_bytes(), cudaMemcpyHostToDevice, stream.get()),
                "upload tables for pruning");
  device::check(cudaStreamSynchronize(stream.get()), "upload tables for pruning");
  return memory;
}

}  // namespace

struct DevicePruner::Impl {
  Impl(const ExpertMap& map, const Topology& topology, const PruneOptions& options, std::int64_t most_tokens)
      : max_tokens(most_tokens),
        num_experts(map.num_experts()),
        limit(options.limit),
        keeps_sum(options.renormalise == Renormalise::keep_sum),
        tokens(device::allocate<PrunedToken>(static_cast<std::size_t>(most_tokens))) {
    const PlaceWords words(map, topology, options.level);
    place_words = upload(std::span(words.words()));
    places = words.at(place_words.get());
    if (options.source.valid() && map.has_replicas()) {
      const CopyArrays arrays(map, topology);
      experts = upload(std::span(arrays.experts));
      copies_begin = upload(std::span(arrays.copies_begin));
      copies = upload(std::span(arrays.copies));
      from_source =
          copies_from(options, {map.num_experts(), experts.get(), copies_begin.get(), copies.get()}, topology);
    }
    if (options.similarity != nullptr) similarity = upload(options.similarity->values());
    device::preload_prune();
  }

  std::int64_t max_tokens;
  std::int32_t num_experts;
  std::int32_t limit;
  bool keeps_sum;
  std::int32_t device = 0;
  std::int64_t num_pruned = 0;          // tokens, by the last call
  std::shared_ptr<PrunedToken> tokens;  // [max_tokens]

  // Tables, on the device.
  std::shared_ptr<std::int32_t> place_words;
  PlaceTables places;
  std::shared_ptr<CopyTables::Expert> experts;
  std::shared_ptr<std::int32_t> copies_begin;
  std::shared_ptr<CopyTables::Copy> copies;
  CopiesFromSource from_source;
  std::shared_ptr<float> similarity;
};

DevicePruner::DevicePruner(const ExpertMap& map, const Topology& topology, const PruneOptions& options,
                           std::int64_t max_tokens, std::int32_t device) {
  check_pruning(Routing{}, 0, map, topology, options);
  if (max_tokens < 0) fail(ErrorCode::invalid_argument, "prune: max_tokens is {}, expected 0 or more", max_tokens);
  const std::int32_t chosen = device < 0 ? current_device() : device;
  const device::OnDevice scope(chosen);
  impl_ = std::make_shared<Impl>(map, topology, options, max_tokens);
  impl_->device = chosen;
}

void DevicePruner::prune(const DeviceRouting& routing, const float* scores, std::int32_t* experts, float* weights,
                         Stream stream) {
  const auto demand = [](bool holds, const std::string& what) {
    if (!holds) fail(ErrorCode::invalid_argument, "prune: {}", what);
  };
  demand(routing.topk >= 1 && routing.topk <= Routing::kMaxTopK,
         fmt::format("topk is {}, expected 1 to {}", routing.topk, Routing::kMaxTopK));
  demand(routing.num_tokens >= 0 && routing.num_tokens <= impl_->max_tokens,
         fmt::format("{} tokens, max_tokens is {}", routing.num_tokens, impl_->max_tokens));
  demand(routing.num_tokens == 0 || routing.experts, "the routing names no experts");
  demand(routing.num_tokens == 0 || (experts && weights), "there is no memory for the pruned routing");
  demand(routing.num_tokens == 0 || (experts != routing.experts && weights != routing.weights),
         "the pruned routing can't take the routing's place");
  const device::OnDevice scope(impl_->device);
  device::launch(device::Prune{.arrays = {.experts = routing.experts,
                                          .weights = routing.weights,
                                          .scores = scores,
                                          .similarity = impl_->similarity.get(),
                                          .places = impl_->places,
                                          .copies = impl_->from_source,
                                          .topk = routing.topk,
                                          .limit = impl_->limit,
                                          .keeps_sum = impl_->keeps_sum,
                                          .pruned_experts = experts,
                                          .pruned_weights = weights},
                               .num_tokens = routing.num_tokens,
                               .tokens = impl_->tokens.get()},
                 stream);
  impl_->num_pruned = routing.num_tokens;
}

PruneReport DevicePruner::report(Stream stream) const {
  const device::OnDevice scope(impl_->device);
  std::vector<PrunedToken> tokens(static_cast<std::size_t>(impl_->num_pruned));
  // The host waits before it copies: ranks of a process share CUDA's queues for copies, where nothing may wait.
  device::check(cudaStreamSynchronize(stream), "wait for pruning");
  device::check(cudaMemcpyAsync(tokens.data(), impl_->tokens.get(), tokens.size() * sizeof(PrunedToken),
                                cudaMemcpyDeviceToHost, stream),
                "read what pruning did");
  device::check(cudaStreamSynchronize(stream), "read what pruning did");
  return report_on(tokens);
}

}  // namespace shunt
