#include "engine/cuda/library.hpp"

#include <cuda_runtime_api.h>

#include <span>
#include <vector>

#include "core/copy_choice.hpp"
#include "core/cuda/memory.hpp"
#include "core/cuda/on_device.hpp"
#include "core/cuda/stream.hpp"
#include "plan/cuda/prune.hpp"
#include "plan/prune.hpp"

namespace shunt {
namespace {

template <class T>
std::shared_ptr<T> upload(std::span<const T> values) {
  const auto memory = device::allocate<T>(values.size());
  // On a stream of its own, as the default one would wait for all others.
  const auto stream = device::make_stream();
  device::copy_when_idle(memory.get(), values.data(), values.size_bytes(), stream.get(), "upload tables for pruning");
  return memory;
}

class DevicePruner final : public Pruner::Impl {
 public:
  DevicePruner(const ExpertMap& map, const Topology& topology, const PruneOptions& options, std::int64_t most_tokens,
               Memory device)
      : limit_(options.limit),
        keeps_sum_(options.renormalise == Renormalise::keep_sum),
        tokens_(device::allocate<PrunedToken>(static_cast<std::size_t>(most_tokens))) {
    memory = device;
    max_tokens = most_tokens;
    const PlaceWords words(map, topology, options.level);
    place_words_ = upload(std::span(words.words()));
    places_ = words.at(place_words_.get());
    if (options.source.valid() && map.has_replicas()) {
      const CopyArrays arrays(map, topology);
      experts_ = upload(std::span(arrays.experts));
      copies_begin_ = upload(std::span(arrays.copies_begin));
      copies_ = upload(std::span(arrays.copies));
      from_source_ =
          copies_from(options, {map.num_experts(), experts_.get(), copies_begin_.get(), copies_.get()}, topology);
    }
    if (options.similarity != nullptr) similarity_ = upload(options.similarity->values());
    device::preload_prune();
  }

  void prune(const Routing& routing, const float* scores, std::int32_t* experts, float* weights,
             Stream stream) override {
    const device::OnDevice scope(memory.device);
    num_pruned_ = routing.num_tokens();
    device::launch(device::Prune{.arrays = {.experts = routing.experts.narrow().data(),
                                            .weights = routing.weights.data(),
                                            .scores = scores,
                                            .similarity = similarity_.get(),
                                            .places = places_,
                                            .copies = from_source_,
                                            .topk = routing.topk,
                                            .limit = limit_,
                                            .keeps_sum = keeps_sum_,
                                            .pruned_experts = experts,
                                            .pruned_weights = weights},
                                 .num_tokens = static_cast<std::int64_t>(num_pruned_),
                                 .tokens = tokens_.get()},
                   stream);
  }

  [[nodiscard]] PruneReport report(Stream stream) const override {
    const device::OnDevice scope(memory.device);
    std::vector<PrunedToken> tokens(num_pruned_);
    device::copy_when_idle(tokens.data(), tokens_.get(), tokens.size() * sizeof(PrunedToken), stream,
                           "read back the results of pruning");
    return report_on(tokens);
  }

 private:
  std::int32_t limit_;
  bool keeps_sum_;
  std::size_t num_pruned_ = 0;           // tokens, by the last call
  std::shared_ptr<PrunedToken> tokens_;  // [max_tokens]

  // Tables, on the device.
  std::shared_ptr<std::int32_t> place_words_;
  PlaceTables places_;
  std::shared_ptr<CopyTables::Expert> experts_;
  std::shared_ptr<std::int32_t> copies_begin_;
  std::shared_ptr<CopyTables::Copy> copies_;
  CopiesFromSource from_source_;
  std::shared_ptr<float> similarity_;
};

}  // namespace

std::shared_ptr<Pruner::Impl> make_device_pruner(const ExpertMap& map, const Topology& topology,
                                                 const PruneOptions& options, std::int64_t max_tokens, Memory memory) {
  const device::OnDevice scope(memory.device);
  return std::make_shared<DevicePruner>(map, topology, options, max_tokens, memory);
}

}  // namespace shunt
