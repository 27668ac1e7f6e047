#include "bench/layer/device_experts.hpp"

#include <algorithm>

#include "core/fail.hpp"
#include "engine/cuda/engine_impl.hpp"
#include "kernels/cuda/mlp/tiles.hpp"
#include "kernels/cuda/mlp/unique_mlp.hpp"

namespace shunt::bench {
namespace {

class ExpertMajor final : public LayerExperts {
 public:
  ExpertMajor(const device::ExpertMlpShape& shape, const device::ExpertWeights& weights, Stream stream)
      : shape_(shape), mlp_(shape, weights, stream) {}

  void run(const DevicePlan& plan, const Tensor& rows, const Tensor& out) override {
    mlp_.run(plan.expert_offsets(), rows.data, out.data);
  }
  [[nodiscard]] std::size_t workspace_bytes() const override { return shape_.workspace_bytes(); }
  [[nodiscard]] std::int64_t rows_computed() const override { return shape_.num_tiles * device::kTileRows; }

 private:
  device::ExpertMlpShape shape_;
  device::ExpertMlp mlp_;
};

device::UniqueView view_of(const DevicePlan& plan) {
  return {.num_rows = &plan.data()->arrays.sizes->num_rows,
          .expert_offsets = plan.expert_offsets(),
          .expert_counts = plan.expert_counts(),
          .unique_of_expert_row = plan.unique_of_expert_row(),
          .expert_rows = plan.expert_rows_of_unique(),
          .experts = plan.unique_experts(),
          .weights = plan.unique_weights(),
          .num_experts = plan.num_local_experts(),
          .topk = plan.topk()};
}

class TokenUnique final : public LayerExperts {
 public:
  TokenUnique(const device::UniqueMlpShape& shape, const device::ExpertWeights& weights, Stream stream)
      : shape_(shape), mlp_(shape, weights, stream) {}

  void run(const DevicePlan& plan, const Tensor& rows, const Tensor& out) override {
    mlp_.run(view_of(plan), rows.data, out.data);
  }
  void check() override {
    if (mlp_.tiles_needed() > shape_.tiles_per_chunk)
      fail(ErrorCode::internal, "a run of rows needs {} tiles, there are {}", mlp_.tiles_needed(),
           shape_.tiles_per_chunk);
  }
  [[nodiscard]] std::size_t workspace_bytes() const override { return shape_.workspace_bytes(); }
  [[nodiscard]] std::int64_t rows_computed() const override { return shape_.num_chunks * shape_.buffer_rows(); }

 private:
  device::UniqueMlpShape shape_;
  device::UniqueMlp mlp_;
};

}  // namespace

std::unique_ptr<LayerExperts> make_layer_experts(const LayerConfig& config, const LayerDemand& demand,
                                                 const DevicePlan& plan, const device::ExpertWeights& weights,
                                                 Stream stream) {
  const ShuffleConfig& shuffle = config.shuffle;
  if (shuffle.layout == Layout::expert_major)
    return std::make_unique<ExpertMajor>(
        device::ExpertMlpShape{.dtype = shuffle.dtype,
                               .hidden = shuffle.hidden,
                               .ffn = config.ffn,
                               .num_experts = plan.num_local_experts(),
                               .num_tiles = std::max<std::int64_t>(device::tiles_of(demand.aligned_rows), 1)},
        weights, stream);
  device::UniqueMlpShape shape{.dtype = shuffle.dtype,
                               .hidden = shuffle.hidden,
                               .ffn = config.ffn,
                               .num_experts = plan.num_local_experts(),
                               .topk = shuffle.topk,
                               .max_expert_rows = demand.most_rows,
                               .num_chunks = config.num_chunks()};
  shape.tiles_per_chunk = std::max<std::int64_t>(device::count_tiles(shape, view_of(plan), stream), 1);
  return std::make_unique<TokenUnique>(shape, weights, stream);
}

}  // namespace shunt::bench
